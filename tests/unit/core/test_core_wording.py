"""Pydantic's messages are given in terms of the file, never in those of Python's types."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from floe_core.wording import value_problem


class Settings(BaseModel):
    levels: tuple[str, ...] = Field(default=("a",), min_length=1, max_length=3)
    pairs: list[str] = Field(default=["a", "b"], min_length=2)
    title: str = Field(default="a", min_length=1, max_length=5)
    size: int = Field(default=1, gt=0, lt=10)
    on: bool = True
    kind: Literal["x", "y"] = "x"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"levels": []}, "this must not be empty: name at least one"),
        ({"levels": list("abcd")}, "this must have at most 3 items"),
        ({"levels": "abc"}, "this must be a list, such as [a, b]"),
        ({"pairs": ["a"]}, "this must have at least 2 items"),
        ({"title": ""}, "this must not be empty"),
        ({"title": "a" * 6}, "this must have at most 5 characters"),
        ({"size": 0}, "this must be greater than 0"),
        ({"size": 10}, "this must be less than 10"),
        ({"size": 1.5}, "this must be a whole number"),
        ({"on": "perhaps"}, "this must be true or false"),
        ({"kind": "z"}, "this must be 'x' or 'y'"),
    ],
)
def test_an_error_of_pydantic_says_what_the_value_must_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate(given)
    (error,) = raised.value.errors()
    assert value_problem(error["type"], error["msg"], error.get("ctx")) == message
