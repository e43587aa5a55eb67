"""What a guard keeps over a power cut."""
