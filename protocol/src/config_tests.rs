use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn file(name: &str, content: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::File::create(&path).unwrap().write_all(content.as_bytes()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    (dir, path)
}

fn load(variables: &[(&str, &str)]) -> Result<ClientConfig, ConfigError> {
    let variables: Vec<_> = variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let find = move |name: &str| variables.iter().find(|(k, _)| k == name).map(|(_, v)| v.into());
    ClientConfig::load_with(find)
}

fn load_file(content: &str, more: &[(&str, &str)]) -> Result<ClientConfig, ConfigError> {
    let (_dir, path) = file("client.toml", content, 0o644);
    let mut variables = vec![("GPUPOOL_CONFIG", path.to_str().unwrap())];
    variables.extend(more);
    load(&variables)
}

const EVERY_KEY: &str = r#"
server = "gpu.example:7070"
transport = "tcp"
log = "debug:/var/log/pool.log"
connect_timeout_ms = 500
disable = ["post_alloc", "board"]
insecure = true
driver_version = 12080
gpus = 2
memory = "4GiB"
share = 0.25
class = "latency"
site = "hall 3"
[labels]
model = "x=7"
version = 3
"#;

#[test]
fn every_key_of_the_file_is_taken() {
    let config = load_file(EVERY_KEY, &[]).unwrap();
    assert_eq!(config.server, Some("gpu.example:7070".parse().unwrap()));
    assert_eq!(config.transport, TransportChoice::Tcp);
    assert_eq!(config.log, Log { level: LogLevel::Debug, file: Some("/var/log/pool.log".into()) });
    assert_eq!(config.connect_timeout, Duration::from_millis(500));
    assert!(config.disabled("board") && config.disabled("post_alloc") && !config.disabled("boar"));
    assert!(config.insecure);
    assert_eq!(config.driver_version, Some(12080));
    assert_eq!(
        (config.needs.gpus, config.needs.memory_bytes, config.needs.share_permille),
        (2, 4 << 30, 250)
    );
    assert_eq!((config.needs.class, config.needs.site.as_str()), (Class::Latency, "hall 3"));
    assert_eq!(config.needs.labels["model"], "x=7");
    assert_eq!(config.needs.labels["version"], "3");
}

#[test]
fn variables_win_key_by_key_and_empty_ones_do_not_count() {
    let config = load_file(
        EVERY_KEY,
        &[
            ("GPUPOOL_SERVER", "unix:/run/x.sock"),
            ("GPUPOOL_DISABLE", "slow_path, other"),
            ("GPUPOOL_SHARE", ""),
            ("GPUPOOL_LABELS", "a=1,b=2"),
            ("GPUPOOL_TOKEN", "secret-word"),
            ("GPUPOOL_INSECURE", "0"),
        ],
    )
    .unwrap();
    assert_eq!(config.server, Some("unix:/run/x.sock".parse().unwrap()));
    assert_eq!(config.disable, ["slow_path", "other"]);
    assert_eq!(config.needs.share_permille, 250);
    assert_eq!(config.needs.labels.len(), 2);
    assert_eq!(config.token, Some(Token::new("secret-word")));
    assert!(!config.insecure);
    assert!(!format!("{config:?}").contains("secret-word"));
}

#[test]
fn a_named_file_must_exist_and_the_default_need_not() {
    let missing = load(&[("GPUPOOL_CONFIG", "/nonexistent/client.toml")]).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/client.toml"), "{missing}");
    if !Path::new(DEFAULT_FILE).exists() {
        assert_eq!(load(&[]).unwrap(), ClientConfig::default());
    }
}

#[test]
fn errors_name_the_file_the_key_and_what_fits() {
    for (content, parts) in [
        ("sever = \"a:1\"", ["`sever`", "server"]),
        ("token = \"abc\"", ["`token`", "token_file"]),
        ("\"\" = 1", ["``", "no such key"]),
        ("server = 5", ["`server`", "no port"]),
        ("transport = \"rdma\"", ["`transport`", "auto, shm, tcp"]),
        ("log = \"loud\"", ["`log`", "trace"]),
        ("log = \"info:relative\"", ["`log`", "absolute"]),
        ("connect_timeout_ms = 0", ["`connect_timeout_ms`", "from 1"]),
        ("connect_timeout_ms = -4", ["`connect_timeout_ms`", "from 1"]),
        ("disable = [\"Bad Name\"]", ["`disable`", "Bad Name"]),
        ("disable = [[\"x\"]]", ["`disable`", "array"]),
        ("insecure = \"yes\"", ["`insecure`", "true nor false"]),
        ("gpus = 1.5", ["`gpus`", "whole number"]),
        ("memory = \"4GB\"", ["`memory`", "GiB"]),
        ("memory = \"99999999999TiB\"", ["`memory`", "above 0"]),
        ("share = 1.5", ["`share`", "0.001 to 1"]),
        ("share = nan", ["`share`", "0.001 to 1"]),
        ("class = \"gold\"", ["`class`", "elastic"]),
        ("labels = \"novalue\"", ["`labels`", "name=value"]),
        ("server = \"a:1\"\n\nlog = [", ["client.toml:3", ""]),
    ] {
        let said = load_file(content, &[]).expect_err(content).to_string();
        assert!(said.contains("client.toml") && !said.contains('\n'), "{content}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{content}: {said}");
    }
    let said = load(&[("GPUPOOL_TRANSPORT", "rdma")]).unwrap_err().to_string();
    assert!(said.starts_with("GPUPOOL_TRANSPORT: `rdma`"), "{said}");
}

#[test]
fn a_very_long_value_is_not_repeated_whole() {
    let said = load(&[("GPUPOOL_SERVER", &"ä".repeat(100_000))]).unwrap_err().to_string();
    assert!(said.chars().count() < 500, "{} characters", said.chars().count());
    assert!(said.starts_with("GPUPOOL_SERVER: `ää") && said.ends_with("unix:/path"), "{said}");
}

#[test]
fn a_token_file_is_read_unless_everybody_can() {
    let (_dir, path) = file("token", "the-token-of-today\n", 0o600);
    let config = load(&[("GPUPOOL_TOKEN_FILE", path.to_str().unwrap())]).unwrap();
    assert_eq!(config.token, Some(Token::new("the-token-of-today")));

    let (_dir, path) = file("token", "the-token-of-today\n", 0o604);
    let said = load(&[("GPUPOOL_TOKEN_FILE", path.to_str().unwrap())]).unwrap_err().to_string();
    assert!(said.contains("chmod 600") && !said.contains("the-token"), "{said}");

    let (_dir, path) = file("token", "two words", 0o600);
    let said = load(&[("GPUPOOL_TOKEN_FILE", path.to_str().unwrap())]).unwrap_err().to_string();
    assert!(said.contains("one word") && !said.contains("two"), "{said}");
}

#[test]
fn the_token_variable_wins_over_a_token_file_that_cannot_be_read() {
    let config = load_file("token_file = \"/nonexistent\"", &[("GPUPOOL_TOKEN", "direct")]).unwrap();
    assert_eq!(config.token, Some(Token::new("direct")));
    assert!(load_file("token_file = \"/nonexistent\"", &[]).is_err());
}
