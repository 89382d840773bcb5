"""The commands of `python -m byoc_hw`: a file for each group of them."""
