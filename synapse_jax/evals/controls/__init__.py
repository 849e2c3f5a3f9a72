"""Other engines that evaluate the same tokens: what our numbers are checked against."""
