//! Special files, or far too large ones, wherever the program reads one: it reports them, and
//! neither waits for them nor takes their size in memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::process::{Process, node_mode, program};
use nodepulse_tests::view::View;
use tempfile::tempdir;
use tokio::process::Command;
use tokio::time::timeout;

use super::text;

const HEAD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";

/// KiB of memory that a command gets: a quarter of the large file.
const MEMORY: u32 = 256 << 10;

/// A FIFO without a writer.
fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

/// A gigabyte that takes no disk.
fn sparse(path: &Path) {
    File::create(path).unwrap().set_len(1 << 30).unwrap();
}

/// Makes a file that is not to be read.
type Make = fn(&Path);

/// The stderr of the command, which must end with this code.
async fn refused(args: &[String], code: i32) -> String {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$@\""), "sh"])
        .arg(program())
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = command.spawn().unwrap().wait_with_output();
    let output = timeout(SOON, output).await;
    let output = output.unwrap_or_else(|_| panic!("{args:?} does not end"));
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    stderr
}

/// A place for a file, and the command that reads it.
struct Place {
    name: &'static str,
    file: PathBuf,
    args: Vec<String>,
}

fn of_the_configuration(dir: &Path) -> Vec<Place> {
    let at = |name: &str| dir.join(name);
    fs::create_dir(at("conf.d")).unwrap();
    fs::write(at("good.yaml"), HEAD).unwrap();
    let validate = |flags: &[&str]| {
        let args = ["config", "validate"].iter().chain(flags);
        args.map(|&arg| arg.to_owned()).collect::<Vec<String>>()
    };
    let file = |name, file: PathBuf, args| Place { name, file, args };
    vec![
        file(
            "--config",
            at("config.yaml"),
            validate(&["--config", &text(&at("config.yaml"))]),
        ),
        file(
            "conf.d",
            at("conf.d/1.yaml"),
            validate(&["--config", &text(&at("good.yaml"))]),
        ),
        file(
            "--kubelet-config",
            at("kubelet.yaml"),
            validate(&[
                "--config",
                &text(&at("good.yaml")),
                "--kubelet-config",
                &text(&at("kubelet.yaml")),
            ]),
        ),
    ]
}

/// A kubeconfig that names the tested file and otherwise valid ones.
fn of_credentials(api: &ApiServer, dir: &Path) -> Vec<Place> {
    let good = api.kubeconfig(&dir.join("good"), &Identity::node("worker-1"));
    let good = fs::read_to_string(good).unwrap();
    let with_token = api.token_kubeconfig(&dir.join("good"), "TOKEN");
    let with_token = fs::read_to_string(with_token).unwrap();
    let place = |name: &'static str, good: &str, replace: &dyn Fn(&str, &str) -> Option<String>| {
        let file = dir.join(format!("{name}.file"));
        let mut kubeconfig = String::new();
        for line in good.lines() {
            let (indent, _) = line.split_at(line.len() - line.trim_start().len());
            let with = replace(line.trim_start(), &text(&file));
            let line = with.map_or(line.to_owned(), |with| format!("{indent}{with}"));
            kubeconfig.push_str(&line);
            kubeconfig.push('\n');
        }
        let path = dir.join(format!("{name}.kubeconfig"));
        fs::write(&path, &kubeconfig).unwrap();
        let named = if name == "kubeconfig" { &file } else { &path };
        assert!(
            name == "kubeconfig" || kubeconfig.contains(&text(&file)),
            "{name}: {kubeconfig}"
        );
        let args = [
            "--kernel-tier",
            "files",
            "--serve-address",
            "off",
            "--sandbox",
            "off",
            "--state-directory",
            &text(&dir.join("state")),
            "--kubeconfig",
            &text(named),
        ];
        Place {
            name,
            args: node_mode(&args),
            file,
        }
    };
    let replaced = |from: &'static str, to: &'static str| {
        move |line: &str, file: &str| {
            let rest = line.strip_prefix(from)?;
            rest.starts_with(':').then(|| format!("{to}: {file}"))
        }
    };
    vec![
        place("kubeconfig", &good, &|_, _| None),
        place(
            "certificate-authority",
            &good,
            &replaced("certificate-authority-data", "certificate-authority"),
        ),
        place(
            "client-certificate",
            &good,
            &replaced("client-certificate-data", "client-certificate"),
        ),
        place(
            "client-key",
            &good,
            &replaced("client-key-data", "client-key"),
        ),
        place("token", &with_token, &replaced("token", "tokenFile")),
    ]
}

#[tokio::test]
async fn a_special_or_too_large_file_is_refused_wherever_it_is_named() {
    let (dir, api) = (tempdir().unwrap(), ApiServer::start().await);
    let mut places = of_the_configuration(dir.path());
    places.extend(of_credentials(&api, dir.path()));
    for Place { name, file, args } in places {
        let rows = [
            (
                fifo as Make,
                "it is a FIFO, and only regular files are read",
            ),
            (sparse as Make, "it has more than 1048576 bytes"),
        ];
        for (make, expected) in rows {
            make(&file);
            let stderr = refused(&args, 2).await;
            assert!(stderr.contains(&text(&file)), "{name}: {stderr}");
            assert!(stderr.contains(expected), "{name}: {stderr}");
            fs::remove_file(&file).unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_that_becomes_a_fifo_is_refused_at_the_next_reload_until_it_is_a_regular_file_again()
{
    let (dir, api) = (tempdir().unwrap(), ApiServer::start().await);
    let config = dir.path().join("config.yaml");
    fs::write(&config, HEAD).unwrap();
    let part = dir.path().join("conf.d/1.yaml");
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    let kubeconfig = api.kubeconfig(&dir.path().join("kubeconfig"), &Identity::node("worker-1"));
    let agent = Process::start(node_mode(&[
        "--kernel-tier",
        "files",
        "--serve-address",
        "off",
        "--kubeconfig",
        &text(&kubeconfig),
        "--config",
        &text(&config),
    ]));
    View::of(&api, "worker-1").settled(SOON).await;

    fifo(&part);
    agent.hang_up();
    agent.wait_for_line("it is a FIFO", SOON).await;
    fs::remove_file(&part).unwrap();
    fs::write(&part, format!("{HEAD}maxPods: 17\n")).unwrap();
    agent.hang_up();
    agent.wait_for_line("configuration reloaded", SOON).await;
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}
