"""SeaweedFS: S3, STS and an Iceberg REST catalog with OAuth2 and vended credentials, one process on loopback."""

from __future__ import annotations

import base64
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # no stubs
import requests

__all__ = ["BUCKET", "OTHER_BUCKET", "SeaweedFS", "seaweedfs_server"]

BUCKET = "lake"
# A plain bucket: no table of the catalog lies there.
OTHER_BUCKET = "plain"
_ROLE = "IcebergVend"
# One for all servers of this process: a test that reads it from the environment may find the one of a later server.
_SECRET = secrets.token_hex(12)
_PORTS = ("master", "volume", "filer", "s3")


@dataclass
class SeaweedFS:
    """A server, running or not; its addresses stay the same when it is started again."""

    folder: Path
    key: str
    secret: str
    ports: dict[str, int]
    vended_seconds: int
    s3_endpoint: str
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def catalog_uri(self) -> str:
        return f"http://127.0.0.1:{self.ports['iceberg']}"

    @property
    def s3_address(self) -> str:
        """Where its S3 listens; clients are told `s3_endpoint`, which may be a proxy before it."""
        return f"http://127.0.0.1:{self.ports['s3']}"

    def start(self) -> None:
        """Start the server, and wait until it lists the namespaces of its bucket."""
        addresses = [f"-{name}.port={self.ports[name]}" for name in _PORTS]
        addresses += [f"-{name}.port.grpc={self.ports[f'{name}.grpc']}" for name in _PORTS]
        command = [
            str(Path(sys.executable).with_name("weed")),
            *("-logtostderr=true", "mini", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-master.telemetry=false", "-admin.ui=false", "-webdav=false", *addresses, "-s3.port.lance=0"),
            *(f"-admin.port={self.ports['admin']}", f"-admin.port.grpc={self.ports['admin.grpc']}"),
            *(f"-s3.port.iceberg={self.ports['iceberg']}", f"-s3.externalUrl={self.s3_endpoint}"),
            *(f"-s3.config={self.folder / 's3.json'}", f"-s3.iam.config={self.folder / 'iam.json'}"),
            *(f"-tableBucket={BUCKET}", f"-bucket={OTHER_BUCKET}"),
            *(f"-s3.iceberg.credentialRole=arn:aws:iam::role/{_ROLE}",),
            f"-s3.iceberg.credentialDurationSeconds={self.vended_seconds}",
        ]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait()

    def stop(self, *, kill: bool = False) -> None:
        """End the process, gently or as a machine that loses its power would."""
        assert self._process is not None
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait(60)
        self._process = None

    def token(self) -> str:
        asked = {"grant_type": "client_credentials", "client_id": self.key, "client_secret": self.secret}
        answer = requests.post(f"{self.catalog_uri}/v1/oauth/tokens", data=asked, timeout=5)
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def set_back(self, path: str, *, seconds: float) -> None:
        """Let a file be older than it is: S3 has no words for that, the server's own protocol has."""
        folder, _, name = f"/buckets/{path}".rpartition("/")
        with grpc.insecure_channel(f"127.0.0.1:{self.ports['filer.grpc']}") as channel:

            def ask(method: str, request: bytes) -> bytes:
                answer: bytes = channel.unary_unary(f"/filer_pb.SeaweedFiler/{method}")(request, timeout=10)
                return answer

            found = ask("LookupDirectoryEntry", _field(1, folder.encode()) + _field(2, name.encode()))
            entry = next(value for number, value, _ in _fields(found) if number == 1)
            parts = []
            for number, value, raw in _fields(entry):
                if number == 4:  # the attributes; their second field is the time of the last change
                    others = b"".join(one for inner, _, one in _fields(value) if inner != 2)
                    raw = _field(4, others + _varint(2 << 3) + _varint(int(time.time() - seconds)))
                parts.append(raw)
            ask("UpdateEntry", _field(1, folder.encode()) + _field(2, b"".join(parts)))

    def _wait(self) -> None:
        """`/v1/config` answers long before the bucket is there."""
        assert self._process is not None
        problem: object = None
        for _ in range(300):
            if self._process.poll() is not None:
                break
            try:
                headers = {"Authorization": f"Bearer {self.token()}"}
                listed = requests.get(f"{self.catalog_uri}/v1/{BUCKET}/namespaces", headers=headers, timeout=5)
                listed.raise_for_status()
                # The bucket is known before a file can be written: the volume server says when.
                if self._can_store():
                    return
            except requests.RequestException as exc:
                problem = exc
            time.sleep(0.1)
        log = (self.folder / "server.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"SeaweedFS did not start: {problem}\n{log}")

    def _can_store(self) -> bool:
        answer = requests.get(f"http://127.0.0.1:{self.ports['master']}/dir/assign", timeout=5).json()
        return "fid" in answer


@contextmanager
def seaweedfs_server(
    folder: Path, *, vended_seconds: int = 900, s3_endpoint: Callable[[str], str] = lambda address: address
) -> Iterator[SeaweedFS]:
    """A running server whose files and log are in the folder.

    `s3_endpoint` makes the address that clients are told from the one at which S3 will listen.
    """
    (folder / "data").mkdir(parents=True, exist_ok=True)
    names = [*_PORTS, *(f"{name}.grpc" for name in _PORTS), "admin", "admin.grpc", "iceberg"]
    for attempt in range(3):
        ports = _free_ports(names)
        endpoint = s3_endpoint(f"http://127.0.0.1:{ports['s3']}")
        server = SeaweedFS(folder, "floe", _SECRET, ports, vended_seconds, endpoint)
        _write_settings(server)
        try:
            server.start()
            break
        except RuntimeError:  # somebody took one of the ports between our look and the server's
            server.stop(kill=True)
            if attempt == 2:
                raise
    try:
        yield server
    finally:
        if server._process is not None:
            server.stop()


def _varint(number: int) -> bytes:
    """A number as protocol buffers write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The number, the content and the raw bytes of each field."""

    def varint(place: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[place]
            value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
            if byte < 0x80:
                return value, place

    place = 0
    while place < len(message):
        began = place
        tag, place = varint(place)
        start = place
        if tag & 7 == 0:
            _, place = varint(place)
        elif tag & 7 == 2:
            length, start = varint(place)
            place = start + length
        else:
            place += 4 if tag & 7 == 5 else 8
        yield tag >> 3, message[start:place], message[began:place]


def _free_ports(names: list[str]) -> dict[str, int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in names]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in zip(names, sockets, strict=True)}


def _write_settings(server: SeaweedFS) -> None:
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = [_identity("floe", server.key, server.secret, everything)]
    identities += [_identity("guest", "guest", f"{server.secret}-guest", [f"Read:{OTHER_BUCKET}"])]
    (server.folder / "s3.json").write_text(json.dumps({"identities": identities}))
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}]}
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]},
            # Without this one, vending fails silently: the answer is 200 with no credentials in it.
            {
                "Effect": "Allow",
                "Principal": {"Federated": "iceberg-catalog"},
                "Action": ["sts:AssumeRoleWithCredentials"],
            },
        ],
    }
    iam = {
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "floe-tests",
            "signingKey": base64.b64encode(secrets.token_bytes(48)).decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "IcebergFiles", "document": policy}],
        "roles": [
            {
                "roleName": _ROLE,
                "roleArn": f"arn:aws:iam::role/{_ROLE}",
                "attachedPolicies": ["IcebergFiles"],
                "trustPolicy": trust,
            }
        ],
    }
    (server.folder / "iam.json").write_text(json.dumps(iam))


def _identity(name: str, key: str, secret: str, actions: list[str]) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
