//! The children of `nodepulse_tests::provoke`: they eat memory, or they exist.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::{env, fs, thread};

/// Touched at a time: small steps, so that the limit is hit and not jumped over.
const STEP: usize = 64 * 1024;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["eat", cgroup, bytes] => eat(cgroup, bytes),
        ["hold", cgroup, bytes] => hold(cgroup, bytes),
        ["crowd", count] => crowd(count),
        ["storm", count, rounds] => storm(count, rounds),
        ["stand"] => stand(),
        ["stay", cgroup] => stay(cgroup),
        _ => Err(io::Error::other(
            "usage: provoke eat CGROUP BYTES | hold CGROUP BYTES | crowd COUNT | storm COUNT ROUNDS | \
             stay CGROUP",
        )),
    };
    if let Err(err) = done {
        eprintln!("provoke {args:?}: {err}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Moves into `cgroup` and fills `bytes` of memory.
fn eat(cgroup: &str, bytes: &str) -> io::Result<()> {
    let eaten = eaten(cgroup, bytes)?;
    println!("still alive after {} steps", eaten.len());
    Ok(())
}

/// The same, says so with one byte, and stands there.
fn hold(cgroup: &str, bytes: &str) -> io::Result<()> {
    let _eaten = eaten(cgroup, bytes)?;
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    stand()
}

fn eaten(cgroup: &str, bytes: &str) -> io::Result<Vec<Vec<u8>>> {
    let bytes: usize = bytes.parse().map_err(io::Error::other)?;
    join(cgroup)?;
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    for step in 0..bytes / STEP {
        // Not all the same, so that no page is shared with another.
        eaten.push(vec![u8::try_from(step % 251).unwrap_or(1) | 1; STEP]);
    }
    Ok(eaten)
}

fn join(cgroup: &str) -> io::Result<()> {
    fs::write(
        format!("{cgroup}/cgroup.procs"),
        std::process::id().to_string(),
    )
}

/// Moves into `cgroup`, says so with one byte, and stands there.
fn stay(cgroup: &str) -> io::Result<()> {
    join(cgroup)?;
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    stand()
}

/// Forks `count` processes, says so with one byte, and goes with all of them when its input ends.
fn crowd(count: &str) -> io::Result<()> {
    let count: u32 = count.parse().map_err(io::Error::other)?;
    let me = env::current_exe()?;
    let children: io::Result<Vec<Child>> = (0..count)
        .map(|_| {
            Command::new(&me)
                .arg("stand")
                .stdin(Stdio::inherit())
                .stdout(Stdio::null())
                .spawn()
        })
        .collect();
    let mut children = children?;
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    stand()?;
    for child in &mut children {
        child.wait()?;
    }
    Ok(())
}

/// Begins `count` threads that are there together, and ends them; `rounds` times.
fn storm(count: &str, rounds: &str) -> io::Result<()> {
    let count: usize = count.parse().map_err(io::Error::other)?;
    let rounds: usize = rounds.parse().map_err(io::Error::other)?;
    for _ in 0..rounds {
        let all = Barrier::new(count + 1);
        let all = &all;
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(move || all.wait());
            }
            all.wait();
        });
        // A thread can be joined before the kernel has taken back its id.
        while fs::read_dir("/proc/self/task")?.count() > 1 {
            thread::yield_now();
        }
    }
    Ok(())
}

/// Exists until the input ends, as it also does when whoever holds it is killed.
fn stand() -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
