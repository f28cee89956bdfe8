"""What the theorems leave open, and what one would pick instead, measured."""
