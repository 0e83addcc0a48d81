"""What it is trained on: clusters of devices and links."""
