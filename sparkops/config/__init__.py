"""What an operator writes: recipes and the inventory, with the line of each fault."""
