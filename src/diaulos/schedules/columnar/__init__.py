"""Actions as columns of numbers, and as rows once somebody reads them."""
