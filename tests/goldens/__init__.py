"""Golden traces: what BMv2 did with scripted inputs, which every other target must do byte for byte."""

import pytest

pytest.register_assert_rewrite("goldens.trace")
