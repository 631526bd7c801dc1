"""Packet tests of the P4 program: every step is checked against an executable reference model."""

import pytest

pytest.register_assert_rewrite("packets.twin")
