"""What is trained: layer graphs and their readers."""
