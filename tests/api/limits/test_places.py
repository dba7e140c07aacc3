"""Places for connections: shares of addresses, a reserve for keys, probation (SEC-001)."""

from __future__ import annotations

import pytest

from holdfast.api.limits.places import ConnectionPlace, ConnectionPlaces, Share
from holdfast.core.base.errors import Refused

pytestmark = pytest.mark.rule("SEC-001")


class Socket:
    """A connection that notes whether it was closed."""

    def __init__(self, places: ConnectionPlaces, client: str) -> None:
        self.is_closed = False
        self.place = places.enter(client, self.close)

    def close(self) -> None:
        self.is_closed = True

    @property
    def share(self) -> Share | None:
        return self.place.share if isinstance(self.place, ConnectionPlace) else None

    def show_key(self, key: str = "k") -> Refused | None:
        assert isinstance(self.place, ConnectionPlace)
        return self.place.on_key(key)


def places() -> ConnectionPlaces:
    return ConnectionPlaces(places_max=16, address_max=4, key_max=3, reserved=4)


def test_an_address_has_its_share_and_no_more() -> None:
    room = places()
    shares = [Socket(room, "a").share for _ in range(5)]
    assert shares == [Share.ANONYMOUS] * 4 + [Share.PROBATION]
    assert Socket(room, "b").share is Share.ANONYMOUS


def test_a_valid_key_frees_the_share_of_the_address() -> None:
    room = places()
    sockets = [Socket(room, "a") for _ in range(4)]
    assert sockets[0].show_key() is None
    assert sockets[0].share is Share.KEYED
    assert Socket(room, "a").share is Share.ANONYMOUS


def test_thousands_of_sockets_without_a_key_shut_out_nobody_with_one() -> None:
    room = places()
    crowd = [Socket(room, f"crowd-{n}") for n in range(100)]
    honest = Socket(room, "honest")
    assert [honest.share, honest.show_key()] == [Share.PROBATION, None]
    assert honest.share is Share.KEYED
    more = [Socket(room, f"more-{n}") for n in range(100)]
    assert (honest.is_closed, len(room)) == (False, 16)
    assert [each.is_closed for each in crowd[:12]] == [False] * 12, "who was there before stays"
    assert sum(not each.is_closed for each in (*crowd[12:], *more)) == 3, "the newest are on probation"


def test_keys_fill_the_reserve_with_places_of_their_own_and_have_a_limit() -> None:
    room = places()
    sockets = [Socket(room, f"host-{n}") for n in range(4)]
    assert [each.show_key("k") is None for each in sockets] == [True, True, True, False]
    sockets[0].place.leave()  # type: ignore[union-attr]
    sockets[0].place.leave()  # type: ignore[union-attr]
    assert sockets[3].show_key("k") is None


def test_a_place_is_free_again_when_its_connection_is_gone() -> None:
    room = places()
    for _ in range(3):
        sockets = [Socket(room, f"{n}") for n in range(16)]
        for each in sockets:
            each.place.leave()  # type: ignore[union-attr]
        assert len(room) == 0


def test_without_a_reserve_a_full_server_refuses() -> None:
    room = ConnectionPlaces(places_max=1, address_max=4, key_max=3, reserved=0)
    assert Socket(room, "a").share is Share.ANONYMOUS
    assert isinstance(Socket(room, "b").place, Refused)
