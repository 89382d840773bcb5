"""The array: geometry of layers, their mapping, storages, tilings, blocks of weights, and costs in cycles."""
