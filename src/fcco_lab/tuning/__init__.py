"""Finding lr, alpha and beta on held-out data: the grid, and a search that prunes."""
