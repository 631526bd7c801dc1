"""Fixtures of the controller's tests."""

import asyncio

import pytest


@pytest.fixture
def run():
    """Runs an async test."""
    return asyncio.run
