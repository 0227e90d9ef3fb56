"""What the host's threads did while the device worked or idled, and the price of overlap."""
