"""Credentials in URLs are seen nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.command import Command
from sparkops.errors import NodeError, SparkopsError, UsageError
from sparkops.guard.environment import log
from sparkops.node.progress import Event
from sparkops.operator.cli import terminal
from sparkops.operator.cli.progress import progress
from sparkops.redact import document, hidden, redacted, shell
from tests.places import CAPTURED

URL = "https://user:s3cret@mirror.lan/simple"
SHOWN = "https://***@mirror.lan/simple"
USER = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="/?#@:["), min_size=1)
PASSWORD = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="@"), min_size=1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, SHOWN),
        (f"--env=A={URL} and '{URL}'.", f"--env=A={SHOWN} and '{SHOWN}'."),
        ("http://t0ken@h:80/x", "http://***@h:80/x"),
        ("socks5://u:p@ss@h", "socks5://***@h"),
        ("git+https://u:p@h/a@1.2", "git+https://***@h/a@1.2"),
        ("http://u:@[fd00::1]:80/", "http://***@[fd00::1]:80/"),
        ("https://u:pa/ss@h/x", "https://***@h/x"),
        ("https://u:12/ss@h/x", "https://u:12/ss@h/x"),  # a port and a path, as far as anybody can tell
        ("file:///srv/a@b", "file:///srv/a@b"),
        ("http://h:8000/v1/a@b", "http://h:8000/v1/a@b"),
        ("http://[fd00::1]:8000/a@b", "http://[fd00::1]:8000/a@b"),
        ("https://h/a:b@c", "https://h/a:b@c"),
        ("https://h and a@b", "https://h and a@b"),
        ("https://h\na@b", "https://h\na@b"),
        ("ssh ops@h, debian@sha256:1", "ssh ops@h, debian@sha256:1"),
    ],
)
def test_user_and_password_of_a_url_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


@given(user=USER, password=PASSWORD.filter(lambda text: not text.lstrip("0123456789").startswith(("/", "?", "#"))))
def test_no_character_of_a_password_gives_it_away(user: str, password: str) -> None:
    assert redacted(f"got http://{user}:{password}@h/x.") == "got http://***@h/x."


@pytest.mark.parametrize(
    "error",
    [
        SparkopsError(URL, next_step=URL),
        UsageError(f"--set {URL}: expected", next_step=f"a {URL}"),
        NodeError("n1", URL, next_step=URL),
    ],
)
def test_an_error_holds_none(error: SparkopsError) -> None:
    assert "s3cret" not in f"{error} {error.next_step} {error.args} {getattr(error, 'problem', '')}"
    assert SHOWN in str(error)
    assert SHOWN in error.next_step


def test_the_log_of_a_guard_holds_none(capsys: pytest.CaptureFixture[str]) -> None:
    log(f"chat: {URL}")

    assert capsys.readouterr().err.endswith(f" chat: {SHOWN}\n")


def test_what_is_printed_holds_none(capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(("docker", "create", f"--env=HTTP_PROXY={URL}", "x"))

    terminal.say(f"  $ {command}")
    terminal.data(URL)
    terminal.data_json({"a": [URL, {"b": URL}], "c": 1, URL: None})
    with pytest.raises(UsageError) as refused:
        terminal.confirm(URL, yes=False)
    with progress() as report:
        report(Event("n1", f"build: {URL}"))

    out, err = capsys.readouterr()
    assert "s3cret" not in out + err + str(refused.value)
    assert f"  $ docker create --env=HTTP_PROXY={SHOWN} x\n" in err
    assert f"n1: build: {SHOWN}\n" in err
    assert out.startswith(f"{SHOWN}\n")
    assert json.loads(out.partition("\n")[2]) == {"a": [SHOWN, {"b": SHOWN}], "c": 1, SHOWN: None}


HF = "hf_" + "a1" * 10


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["export", "ACME_TOKEN=two words", "&&"], "export ACME_TOKEN=*** &&"),
        (["acme", "login", "--api-key", "k1", "--port", "80"], "acme login --api-key *** --port 80"),
        (["acme", "--password=k1", "-p", "x"], "acme --password=*** -p x"),
        (["hf", "auth", "login", HF], "hf auth login ***"),
        (["curl", "-u", "me:k1", "https://me:k1@h/x"], "curl -u *** https://***@h/x"),
        (["curl", "-H", "Authorization: Bearer k1", "h"], "curl -H Authorization: *** h"),
        (["curl", "-H", "X-Api-Key: k1", "h"], "curl -H X-Api-Key: *** h"),
        (["sh", "-c", "acme --token k1 && B_SECRET='k 1' run"], "sh -c acme --token *** && B_SECRET=*** run"),
        (["sh", "-c", "A=1 TOKEN=k1 run"], "sh -c A=1 TOKEN=*** run"),
        (["mkdir", "-p", "/tmp/x", "&&"], "mkdir -p /tmp/x &&"),
        (["x", "--max-tokens", "5", "--tokenizer-path", "a"], "x --max-tokens 5 --tokenizer-path a"),
        (["--token"], "--token"),
        ([], ""),
    ],
    ids=str,
)
def test_secrets_among_the_words_of_a_shell_are_hidden(words: list[str], shown: str) -> None:
    assert shell(words) == shown


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"before\n{KEY}\nafter", "before\n***\nafter"),
        ("-----BEGIN PRIVATE KEY-----\nb3Blbn", "***"),
        ('{"api_key": "k\\"1", "port": "80"}', '{"api_key": "***", "port": "80"}'),
        (
            "non-default args: {'api_key': ['k1', 'k2'], 'port': 80}",
            "non-default args: {'api_key': \"***\", 'port': 80}",
        ),
        ('{"hosts": [{"password": "k1"}]}', '{"hosts": [{"password": "***"}]}'),
        ('{"port": "80", "password": "k1', '{"port": "80", "password": "***"'),
        (f"HF_TOKEN={HF} started", "HF_TOKEN=*** started"),
        (
            f"\x1b[31mHF_TOKEN=k1 1HF_TOKEN=k1 \u00e9TOKEN=k1 {'a' * 600}_TOKEN=k1",
            "\x1b[31mHF_TOKEN=*** 1HF_TOKEN=*** \u00e9TOKEN=*** " + "a" * 600 + "_TOKEN=***",
        ),
        ("12:30:59,TOKEN=k1 ...--token k1 ---token=k1", "12:30:59,TOKEN=*** ...--token *** ---token=***"),
        ("{'eos_token': '<|end|>', 'token_id': '5'}", "{'eos_token': '<|end|>', 'token_id': '5'}"),
    ],
)
def test_a_log_shows_no_secret(text: str, shown: str) -> None:
    assert document(text) == shown


SECRET_NAMES = (
    "PGPASSWORD MYSQL_PWD SMTP_PASS DB_PASS accessToken clientSecret API_KEYS HF_TOKENS WANDB_KEY LITELLM_MASTER_KEY "
    "apiKey HFToken passwords Cookie access_tokens AWS_SECRET_ACCESS_KEY"
)
OTHER_NAMES = (
    "max_tokens tokenizer max-num-batched-tokens tokens PWD OLDPWD pass pass_config first_pass key sort_key KEY_SIZE "
    "classifier_from_token "
    "cache_key eosToken eos_token_id token_ids promptTokens compass BYPASS TOKENIZERS_PARALLELISM HF_TOKEN_PATH keySize"
)


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_a_name_of_a_secret_hides_its_value(name: str) -> None:
    assert document(f"{name}=k1 x") == f"{name}=*** x"
    assert hidden({name: "k1"}) == {name: "***"}


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_another_name_shows_its_value(name: str) -> None:
    assert document(f"{name}=k1 x") == f"{name}=k1 x"


def test_a_token_of_a_tokenizer_is_none_of_a_hub() -> None:
    assert document("EOS token = 2 '<|im_end|>'") == "EOS token = 2 '<|im_end|>'"
    assert document("token = 12345678") == "token = ***"
    assert document("token = 123456") == "token = ***", "a code of an authenticator"
    assert document("OTP token = 123456") == "OTP token = ***"


def test_a_count_and_what_is_not_set_are_no_secrets() -> None:
    line = "Prefill batch, #new-token: 9, #cached-token: 0, Args(api_key=None, admin_api_key=None)"

    assert document(line) == line
    assert document("#hf-token: k9, api_key=None1 api_key=9") == "#hf-token: *** api_key=*** api_key=***"


@pytest.mark.parametrize("header", ["Cookie: a=k1; b=k2", "Set-Cookie: a=k1; Path=/", "Proxy-Authorization: Basic k1"])
def test_a_header_with_a_secret_is_hidden_to_its_end(header: str) -> None:
    assert document(header) == f"{header.partition(' ')[0]} ***"


@pytest.mark.parametrize(
    "file",
    sorted(file for file in {*CAPTURED.rglob("*.*")} - {*CAPTURED.glob("*-help.txt")} if file.is_file()),
    ids=lambda file: file.name,
)
def test_nothing_of_a_captured_log_is_a_false_alarm(file: Path) -> None:
    text = file.read_text(errors="replace")

    assert document(text) == text


def test_a_value_shows_no_secret_in_keys_variables_flags_and_text() -> None:
    value = {
        "Env": ["HF_TOKEN=k1", "PORT=80"],
        "Args": ["serve", "--api-key", "k1"],
        "auth": {"password": "k1", "user": "me"},
        "token": ["k1"],
        "nested": [{"secret": 7}, URL],
        "empty": {"password": ""},
        "rank": 1,
    }

    assert hidden(value) == {
        "Env": ["HF_TOKEN=***", "PORT=80"],
        "Args": ["serve", "--api-key", "***"],
        "auth": {"password": "***", "user": "me"},
        "token": "***",
        "nested": [{"secret": "***"}, SHOWN],
        "empty": {"password": ""},
        "rank": 1,
    }
