"""The verb `prune`: what a disk holds, what must stay, and the removal of the rest."""
