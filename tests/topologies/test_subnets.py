"""Subnets of runs: none that the machine uses, none twice."""

import ipaddress

import pytest

from netreduce.topologies.subnets import PREFIX_BITS, SUBNETS, claim_subnet

NETWORK = ipaddress.IPv4Network


def test_claims_differ_and_are_given_back_with_their_sockets() -> None:
    first, first_claim = claim_subnet([])
    second, second_claim = claim_subnet([])
    assert first != second
    assert not first.overlaps(second)
    first_claim.close()
    again, again_claim = claim_subnet([])
    assert again == first
    for claim in (second_claim, again_claim):
        claim.close()


@pytest.mark.parametrize("taken", ["198.18.0.0/16", "198.0.0.0/9", "198.18.0.128/25"])
def test_networks_in_use_are_avoided(taken: str) -> None:
    if NETWORK(taken).supernet_of(SUBNETS):
        with pytest.raises(OSError, match=r"every subnet of 198\.18\.0\.0/15 is in use"):
            claim_subnet([NETWORK(taken)])
        return
    subnet, claim = claim_subnet([NETWORK(taken)])
    claim.close()
    assert not subnet.overlaps(NETWORK(taken))
    assert subnet.subnet_of(SUBNETS)
    assert subnet.prefixlen == PREFIX_BITS
