"""Front ends: each reads the modules of one TVM. `seam.py` says what a front end owes the compiler."""
