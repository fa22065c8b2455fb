"""Secrets are found by name and by value, and what only looks like one is not refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trainyard.schemas.validation.secrets import find_secret_arguments, find_secrets, redact

SECRET_NAMES = [
    "password", "PASSWORD", "passwd", "db_password", "dbPassword", "pwd", "passphrase", "secret", "client_secret",
    "apiKey", "api-key", "api_key", "apikey", "OPENAI_API_KEY", "access_key", "private_key", "privateKeyPem",
    "token", "authToken", "sfToken", "hf_token", "HF_TOKEN", "bearer-token",
    "PGPASSWORD", "dbpass", "Authorization", "spark.executorEnv.MYSQLPASSWORD",
    "pass", "PASS", "db_pass", "dbPass", "pw", "db_pw",
    "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net",
    "fs.azure.account.key.acme.blob.core.windows.net",
    "fs.azure.sas.data.acme.blob.core.windows.net",
    "spark.hadoop.fs.azure.sas.fixed.token.acme.dfs.core.windows.net",
    "fs.azure.account.oauth2.client.secret",
    "fs.azure.account.oauth2.client.secret.acme.dfs.core.windows.net",
    "fs.azure.account.oauth2.refresh.token",
    "spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "fs.s3a.bucket.acme.secret.key",
    "fs.s3a.session.token", "fs.s3a.encryption.key", "fs.s3a.server-side-encryption.key",
    "fs.gs.auth.service.account.private.key", "fs.gs.auth.client.secret",
    "spark.authenticate.secret", "spark.ssl.keyPassword", "spark.ssl.ui.keyStorePassword",
    "spark.ssl.historyServer.trustStorePassword", "javax.jdo.option.ConnectionPassword",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY", "spark.yarn.appMasterEnv.AWS_SESSION_TOKEN", "ssl.keystore.pass",
]  # fmt: skip
OTHER_NAMES = [
    "spark.hadoop.hadoop.security.token.service.use_ip",
    "hadoop.security.credential.provider.path",
    "spark.hadoop.hadoop.security.credential.provider.path",
    "hadoop.security.credential.clear-text-fallback",
    "spark.security.credentials.hive.enabled", "spark.security.credentials.renewalRatio",
    "fs.s3a.aws.credentials.provider", "fs.s3a.assumed.role.credentials.provider",
    "fs.azure.account.keyprovider.acme.dfs.core.windows.net", "fs.azure.sas.token.provider.type",
    "fs.azure.sas.token.provider.type.acme.dfs.core.windows.net",
    "fs.azure.account.auth.type", "fs.azure.account.oauth2.client.id", "fs.azure.account.oauth2.client.endpoint",
    "fs.azure.account.oauth.provider.type", "fs.s3a.encryption.algorithm",
    "fs.gs.auth.service.account.private.key.id", "google.cloud.auth.service.account.json.keyfile",
    "yarn.resourcemanager.delegation.token.renew-interval", "dfs.namenode.delegation.token.max-lifetime",
    "spark.kerberos.keytab", "spark.kerberos.principal", "spark.ssl.keyStore", "spark.ssl.trustStore",
    "spark.authenticate", "spark.authenticate.secret.file", "spark.authenticate.secretBitLength",
    "spark.sql.tokenizer", "spark.io.encryption.keySizeBits",
    "spark.hadoop.dfs.adls.oauth2.access.token.provider.type",
    "tokenizer", "tokens", "max_tokens", "token_ids", "token_column", "pad_token", "bos_token", "mask_token",
    "special_token", "key", "keys", "sort_key", "primary_key", "partition_key", "keyboard", "secretary", "passenger",
    "bypass", "compass", "password_file", "password_column", "secret_name", "api_key_env", "tokenType", "n_secrets",
    "path", "url", "user", "header", "passes", "accesskeys_count", "pass_through", "pass_name", "pwm",
]  # fmt: skip
AMBIGUOUS_NAMES = [
    "account_key", "session_key", "encryption_key", "signing-key", "sessionKey", "credentials", "join.session_key",
    "--session-key", "left_session_key", "db_credentials",
]  # fmt: skip
"""Names of secrets, and of columns and tables too."""


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_the_name_of_a_secret_is_found(name: str) -> None:
    assert find_secrets({name: "marker"}) == [name]


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_another_name_is_not_refused(name: str) -> None:
    assert find_secrets({name: "marker"}) == []


@pytest.mark.parametrize("name", AMBIGUOUS_NAMES)
@pytest.mark.parametrize("value", ["customer_id", "table", "customerId", "CustomerKey", "ACCOUNT_ID", "key_2", "x"])
def test_an_identifier_under_an_ambiguous_name_is_not_refused(name: str, value: str) -> None:
    assert find_secrets({name: value}) == []


@pytest.mark.parametrize("name", AMBIGUOUS_NAMES)
@pytest.mark.parametrize(
    "value",
    [
        "Zm9vYmFyYmF6cXV4",
        "9f86d081884c7d659a2feaa0c55ad015",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AKIAIOSFODNN7EXAMPLE",
        "correct horse",
        "hunter2!",
        "{{ conn.db.password }}",
        "a" * 50,
    ],
)
def test_anything_else_under_an_ambiguous_name_is_found(name: str, value: str) -> None:
    assert len(find_secrets({name: value})) == 1


SECRET_VALUES = [
    "jdbc:postgresql://db/clicks?user=me&password=marker",
    "jdbc:sqlserver://db;user=me;pwd=marker",
    "jdbc:sqlserver://db;user=me;Password = marker",
    "jdbc:oracle:thin:me/marker@db:1521:orcl",
    "http://me:marker@mlflow:5000",
    "redis://:marker@cache:6379",
    "s3a://AKIA:marker@bucket/key",
    "https://acme.blob.core.windows.net/c/x?sv=2024&sig=marker",
    "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=marker&X-Amz-Expires=60",
    "https://host/api?access_token=marker",
    "-----BEGIN RSA PRIVATE KEY-----\nmarker",
    "http://me:mark/er@mlflow:5000",
    "Bearer eyJhbGciOiJIUzI1NiJ9.e30.marker",
    "Authorization: Bearer marker-marker",
    "Basic bWU6bWFya2Vy",
    "{{ conn.db.password }}",
    "jdbc:x?p={{ conn.db.password }}",
    "{{ conn.get('db').password }}",
    "{{ conn.db.extra_dejson.token }}",
    "{{ conn.db.get_uri() }}",
    "{{ conn.db.extra_dejson['key'] }}",
    "{{ conn.db.extra }}",
    "{% print conn.db.password %}",
    "{{ '{{' ~ conn.db.password }}",
    "ghp_" + "a1B2" * 9,
    "clone with github_pat_" + "A" * 30,
    "hf_" + "aBcDe" * 7,
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "{{ var.value.db_password }}",
    "{{ var.json.warehouse.api_key }}",
    "{{ var.value.get('db_password') }}",
]
OTHER_VALUES = [
    "hdfs://nn:8020/user/me@corp/x",
    "abfss://container@acme.dfs.core.windows.net/x",
    "http://mlflow:5000",
    "jdbc:postgresql://db:5432/clicks?user=me&ssl=true",
    "https://host/x?max_tokens=5&signature_version=4",
    "me@example.org",
    "12:30 at home@5",
    "a password is needed",
    "{{ params.url }}",
    "{{ conn.db.host }}",
    "{% if params.extra %}{{ params.extra }}{% endif %}",
    "hf_hub_download",
    "AKIA",
    "{{ conn.password_store.login }}",
    "{{ var.value.digits_source }}",
    "{{ var.value.get('password_file') }}",
    "Basic training",
    "Basic statistics of all columns",
    "the bearer of bad news",
    "http://[::1]:8080/user/me@corp",
    "jdbc:postgresql://h1:5432,h2:5432/clicks?user=me@corp",
]


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_with_a_secret_is_found(value: str) -> None:
    assert find_secrets({"url": value}) == ["url"]


@pytest.mark.parametrize("value", OTHER_VALUES)
def test_another_value_is_not_refused(value: str) -> None:
    assert find_secrets({"url": value}) == []


@pytest.mark.parametrize("value", [None, 5, 1.5, True, "", "true", "False"])
def test_a_value_that_can_be_no_secret_is_accepted_under_any_name(value: Any) -> None:
    assert find_secrets({"token": value}) == []


def test_secrets_in_nested_values_are_named_by_their_path() -> None:
    nested = {"db": {"user": "me", "password": "marker"}, "urls": ["http://a", "http://me:marker@b"], "n": 3}
    assert find_secrets(nested) == ["db.password", "urls.1"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--password", "marker"], ["--password"]),
        (["--api-key=marker"], ["--api-key"]),
        (["db.password=marker"], ["db.password"]),
        (["--url", "http://me:marker@b"], ["--url"]),
        (["http://me:marker@b"], ["argument 1"]),
        (["--url=http://me:marker@b"], ["--url"]),
        (["--token", "marker", "--epochs", "3"], ["--token"]),
        (["--token", "--epochs", "3"], []),
        (["--epochs", "3", "--max-tokens", "512", "--password-file", "/x", "--pad-token=<pad>"], []),
        (["password", "reset"], []),
    ],
)
def test_secrets_among_arguments_are_named_by_their_option(arguments: list[str], names: list[str]) -> None:
    assert find_secret_arguments(arguments) == names


def test_an_error_repeats_a_value_without_its_secrets() -> None:
    value = {"user": "me", "password": "marker", "urls": ["http://me:marker@b", "x"]}
    assert redact(value) == {"user": "me", "password": "***", "urls": ["***", "x"]}


@pytest.mark.parametrize(
    "text",
    ["://a:b", "{{", "{%", "conn.get(", "{{ conn.get( }}", "Basic ", "eyJaaaaaaaaaaa.", "a=", "?a ", "-----BEGIN "],
)
def test_a_long_text_is_searched_in_no_quadratic_time(text: str) -> None:
    """60 kB took 36 seconds."""
    began = time.process_time()
    find_secrets({"value": text * (200_000 // len(text))})
    assert time.process_time() - began < 2
