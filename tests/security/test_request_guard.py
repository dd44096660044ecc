"""What `floe dev`'s guard answers, request by request; the real server is in test_dev_server.py."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Message

from floe_runtime.dev.landing import LandingPage
from floe_runtime.dev.request_guard import RequestGuard

TOKEN = "sixteen-or-more-characters"
PROXY = "https://lake-3000.example.dev"
SERVED = (200, "served")


def ask(guard: RequestGuard, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, str, Headers]:
    """The status, the body and the headers of one answer."""
    sent = {"host": "127.0.0.1:3000", **{name.lower().replace("_", "-"): value for name, value in headers.items()}}
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }
    answer: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        answer.append(message)

    asyncio.run(guard(scope, receive, send))
    body = b"".join(one.get("body", b"") for one in answer[1:]).decode()
    return answer[0]["status"], body, Headers(raw=answer[0]["headers"])


def guarded(token: str | None = None, origin: str | None = None) -> RequestGuard:
    return RequestGuard(PlainTextResponse("served"), token=token, origin=origin)


def cookie(token: str) -> str:
    """As a browser returns it after a visit with the token in the address."""
    _, _, headers = ask(guarded(token), f"/?token={quote(token, safe='')}")
    return headers["set-cookie"].rpartition("; HttpOnly")[0]


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://\u2100", "//", "http://127.0.0.1:3000:1"])
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    guard = guarded()
    status, body, _ = ask(guard, method="POST", origin=origin)
    assert status == 403
    assert "another origin" in body


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "HTTP://127.0.0.1:3000", "https://127.0.0.1:3000"])
def test_the_servers_own_origin_is_answered(origin: str) -> None:
    assert ask(guarded(), method="POST", origin=origin)[:2] == SERVED


@pytest.mark.parametrize(
    "others",
    ['prefs={"theme":"dark"}', "a b=c", "broken", "name@x=1", 'quoted="', "floe_dev_token=of-another-server"],
)
def test_cookies_of_other_programs_do_not_hide_the_token(others: str) -> None:
    guard = guarded(TOKEN)
    assert ask(guard, cookie=f"{others}; {cookie(TOKEN)}")[:2] == SERVED
    assert ask(guard, cookie=f"{cookie(TOKEN)}; {others}")[:2] == SERVED
    assert ask(guard, cookie=others)[0] == 401


def test_two_servers_on_one_host_have_cookies_of_their_own() -> None:
    ours, theirs = (cookie(token) for token in (TOKEN, "the-token-of-another-server"))
    assert ours.partition("=")[0] != theirs.partition("=")[0]
    assert TOKEN not in ours.partition("=")[0]
    guard = guarded(TOKEN)
    assert ask(guard, cookie=theirs)[0] == 401


def test_a_token_of_any_printable_characters_comes_back_in_its_cookie() -> None:
    token = "\"a;b,c\\d'e{f}=g|h~!"
    assert ask(guarded(token), cookie=cookie(token))[:2] == SERVED


def test_the_token_leaves_the_address_whether_or_not_its_cookie_is_there() -> None:
    guard = guarded(TOKEN)
    for headers in ({}, {"cookie": cookie(TOKEN)}, {"authorization": f"Bearer {TOKEN}"}):
        status, _, answered = ask(guard, f"/runs?view=all&token={TOKEN}", **headers)
        assert (status, answered["location"]) == (303, "/runs?view=all")
        assert answered["cache-control"] == "no-store"
    assert ask(guard, f"/graphql?token={TOKEN}", cookie=cookie(TOKEN))[2]["location"] == "/graphql"
    assert ask(guard, "/runs?token=wrong", cookie=cookie(TOKEN))[:2] == SERVED
    assert ask(guard, "/runs?token=wrong")[0] == 401


def test_a_page_of_another_origin_gets_no_cookie_for_the_token() -> None:
    guard = guarded(TOKEN)
    status, _, headers = ask(guard, f"/?token={TOKEN}", origin="http://evil.example")
    assert status == 403
    assert "set-cookie" not in headers


def test_behind_a_proxy_the_origin_that_the_user_names_is_answered() -> None:
    guard = guarded(TOKEN, PROXY)
    sent = {"origin": PROXY, "cookie": cookie(TOKEN), "sec_fetch_site": "same-origin"}
    assert ask(guard, method="POST", **sent)[:2] == SERVED
    assert ask(guard, method="POST", **{**sent, "origin": "https://evil.example"})[0] == 403
    assert ask(guard, method="POST", **{**sent, "sec_fetch_site": "cross-site"})[0] == 403
    assert ask(guard, method="POST", origin=PROXY)[0] == 401


def test_a_refusal_of_a_proxy_names_the_setting() -> None:
    for headers in ({"origin": PROXY}, {"host": "lake-3000.example.dev", "origin": PROXY}):
        status, body, _ = ask(guarded(), method="POST", **headers)
        assert status == 403
        assert "FLOE_DEV_ORIGIN" in body


def test_another_origin_without_a_token_is_refused() -> None:
    with pytest.raises(ValueError, match="token"):
        guarded(None, PROXY)


def test_the_root_leads_to_the_asset_graph_once_the_token_is_stored() -> None:
    landing = LandingPage(PlainTextResponse("served"), "/asset-groups")
    status, _, headers = ask(RequestGuard(landing, token=TOKEN), f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    guard = RequestGuard(landing, token=TOKEN)
    status, _, headers = ask(guard, "/", cookie=cookie(TOKEN))
    assert (status, headers["location"]) == (303, "/asset-groups")
    assert ask(guard, "/")[0] == 401
    assert ask(guard, "/runs", cookie=cookie(TOKEN))[:2] == SERVED
