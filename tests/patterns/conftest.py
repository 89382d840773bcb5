"""A shared module's assertions say as much as a test's own."""

import pytest

pytest.register_assert_rewrite("pattern_checks")
