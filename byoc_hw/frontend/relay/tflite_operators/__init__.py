"""Operators of TFLite that TVM's importer lacks, in Relay operators, with the results of TFLite's reference kernels."""
