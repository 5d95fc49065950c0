//! Runs the children of `nodepulse_tests::provoke`, which allocate memory, fork, or wait.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::{env, fs, thread};

use caps::{CapSet, Capability};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nodepulse_tests::alarms::loads;

/// Bytes touched at a time: small steps, so that the limit is reached exactly.
const STEP: usize = 64 * 1024;

fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    // Names of cgroups and processes may be any bytes.
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    if let Err(err) = run(&args) {
        eprintln!("provoke {args:?}: {err}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(words: &[&[u8]]) -> io::Result<()> {
    match words {
        [b"eat", cgroup, bytes] => eat(cgroup, bytes),
        [b"eat", cgroup, bytes, name] => called(name).and_then(|()| eat(cgroup, bytes)),
        [b"allocate", cgroup, bytes] => allocate(cgroup, bytes),
        [b"crowd", count] => crowd(count),
        [b"crowd", cgroup, count] => join(cgroup).and_then(|()| crowd(count)),
        [b"storm", count, rounds] => storm(count, rounds),
        [b"stand"] => stand(),
        [b"nothing"] => Ok(()),
        [b"load", cgroup, name, load @ ..] => join(cgroup).and_then(|()| run_load(name, load)),
        [b"wait", cgroup] => wait_in(cgroup),
        [b"thrash", cgroup, file] => thrash(cgroup, Path::new(OsStr::from_bytes(file))),
        [b"bomb"] => bomb(),
        [b"fork", cgroup, count] => fork(cgroup, count),
        [b"bomb", cgroup] => join(cgroup).and_then(|()| bomb()),
        [b"parent", cgroup, rest @ ..] => join(cgroup).and_then(|()| child(rest)),
        [b"main", cgroup, rest @ ..] => join(cgroup)
            .and_then(|()| child(rest))
            .and_then(|()| stand()),
        [b"namespace", rest @ ..] => namespace(rest),
        [b"users", rest @ ..] => users().and_then(|()| run(rest)),
        [b"map", pid] => stand().and_then(|()| map(pid)),
        [b"unlocked", program, rest @ ..] => unlocked(program, rest),
        [b"score", score, rest @ ..] => {
            fs::write("/proc/self/oom_score_adj", score).and_then(|()| run(rest))
        }
        _ => Err(io::Error::other(
            "usage: provoke eat CGROUP BYTES [NAME] | allocate CGROUP BYTES | \
             crowd [CGROUP] COUNT | storm COUNT ROUNDS | wait CGROUP | fork CGROUP COUNT | bomb CGROUP | \
             thrash CGROUP FILE | parent CGROUP COMMAND | main CGROUP COMMAND | \
             namespace COMMAND | users COMMAND | map PID | \
             unlocked PROGRAM [ARGUMENT…] | score NUMBER COMMAND | load CGROUP NAME [ARGUMENT…]",
        )),
    }
}

fn run_load(name: &[u8], arguments: &[&[u8]]) -> io::Result<()> {
    let text = |bytes| str::from_utf8(bytes).map_err(io::Error::other);
    let arguments: io::Result<Vec<&str>> = arguments.iter().copied().map(text).collect();
    loads::run(text(name)?, &arguments?)
}

fn eat(cgroup: &[u8], bytes: &[u8]) -> io::Result<()> {
    let eaten = eaten(cgroup, bytes)?;
    println!("still alive after {} steps", eaten.len());
    Ok(())
}

/// Moves into `cgroup` and fills `bytes` of memory, then writes one byte, and waits.
fn allocate(cgroup: &[u8], bytes: &[u8]) -> io::Result<()> {
    let _eaten = eaten(cgroup, bytes)?;
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    stand()
}

fn eaten(cgroup: &[u8], bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let bytes: usize = number(bytes)?;
    join(cgroup)?;
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    for step in 0..bytes / STEP {
        // Different contents, so that no pages are merged.
        eaten.push(vec![u8::try_from(step % 251).unwrap_or(1) | 1; STEP]);
    }
    Ok(eaten)
}

fn number<T: std::str::FromStr>(text: &[u8]) -> io::Result<T> {
    let text = str::from_utf8(text).map_err(io::Error::other)?;
    text.parse()
        .map_err(|_| io::Error::other(format!("{text:?} is no number")))
}

/// Runs this program with `words` as the first process of a new pid namespace, and waits for its
/// end.
fn namespace(words: &[&[u8]]) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    child(words)
}

/// Enters a new user namespace, whose users a process outside of it must map.
fn users() -> io::Result<()> {
    let mut mapper = Command::new(env::current_exe()?);
    let mapper = mapper.args(["map", &std::process::id().to_string()]);
    let mut mapper = mapper.stdin(Stdio::piped()).spawn()?;
    unshare(CloneFlags::CLONE_NEWUSER)?;
    drop(mapper.stdin.take());
    let status = mapper.wait()?;
    let failed = || io::Error::other(format!("the mapping ended with {status}"));
    status.success().then_some(()).ok_or_else(failed)
}

/// Maps root to the user 1000 of the user namespace of `pid`, and other users to those before it.
fn map(pid: &[u8]) -> io::Result<()> {
    let pid: u32 = number(pid)?;
    fs::write(format!("/proc/{pid}/uid_map"), "0 231072 1000\n1000 0 1\n")
}

/// Executes a program without the capability to raise the limit on locked memory, which is that of
/// a container.
fn unlocked(program: &[u8], arguments: &[&[u8]]) -> io::Result<()> {
    const LIMIT: u64 = 8 << 20;
    setrlimit(Resource::RLIMIT_MEMLOCK, LIMIT, LIMIT)?;
    caps::drop(None, CapSet::Bounding, Capability::CAP_SYS_RESOURCE).map_err(io::Error::other)?;
    let arguments = arguments.iter().map(|argument| OsStr::from_bytes(argument));
    Err(Command::new(OsStr::from_bytes(program))
        .args(arguments)
        .exec())
}

/// Runs this program with `words`, and waits for its end.
fn child(words: &[&[u8]]) -> io::Result<()> {
    let words = words.iter().map(|word| OsStr::from_bytes(word));
    // It may be killed.
    let _ = Command::new(env::current_exe()?).args(words).status()?;
    Ok(())
}

fn called(name: &[u8]) -> io::Result<()> {
    Ok(prctl::set_name(&CString::new(name)?)?)
}

fn join(cgroup: &[u8]) -> io::Result<()> {
    let procs = Path::new(OsStr::from_bytes(cgroup)).join("cgroup.procs");
    fs::write(procs, std::process::id().to_string())
}

/// Starts itself repeatedly, as each child does.
fn bomb() -> io::Result<()> {
    let me = env::current_exe()?;
    let mut children = Vec::new();
    loop {
        children.extend(Command::new(&me).arg("bomb").spawn());
    }
}

/// Moves into `cgroup`, writes one byte, and waits.
fn wait_in(cgroup: &[u8]) -> io::Result<()> {
    join(cgroup)?;
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    stand()
}

/// Moves into `cgroup`, writes one byte, and reads `file` from several threads until its input
/// ends: each evicts pages that another needs.
fn thrash(cgroup: &[u8], file: &Path) -> io::Result<()> {
    join(cgroup)?;
    for _ in 0..4 {
        let mut file = fs::File::open(file)?;
        // Cached pages are charged to another cgroup.
        let unneeded = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        posix_fadvise(&file, 0, 0, unneeded)?;
        thread::spawn(move || {
            while file.rewind().is_ok() && io::copy(&mut file, &mut io::sink()).is_ok() {}
        });
    }
    io::stdout().write_all(b".")?;
    io::stdout().flush()?;
    stand()
}

/// Forks `count` processes, writes one byte, and ends with all of them when its input ends.
fn crowd(count: &[u8]) -> io::Result<()> {
    let count: u32 = number(count)?;
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

/// Starts `count` threads that exist at the same time, and ends them; `rounds` times.
fn storm(count: &[u8], rounds: &[u8]) -> io::Result<()> {
    let count: usize = number(count)?;
    let rounds: usize = number(rounds)?;
    for _ in 0..rounds {
        let all = Barrier::new(count + 1);
        let all = &all;
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(move || all.wait());
            }
            all.wait();
        });
        // A thread can be joined before the kernel has released its id.
        while fs::read_dir("/proc/self/task")?.count() > 1 {
            thread::yield_now();
        }
    }
    Ok(())
}

/// Moves into `cgroup`, tries `count` forks, and prints how many failed.
fn fork(cgroup: &[u8], count: &[u8]) -> io::Result<()> {
    let count: u32 = number(count)?;
    let me = env::current_exe()?;
    join(cgroup)?;
    let mut made = Vec::new();
    let mut refused = 0;
    for _ in 0..count {
        let mut stand = Command::new(&me);
        match stand.arg("stand").stdin(Stdio::piped()).spawn() {
            Ok(child) => made.push(child),
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => refused += 1,
            Err(err) => return Err(err),
        }
    }
    for mut child in made {
        drop(child.stdin.take());
        child.wait()?;
    }
    println!("{refused}");
    Ok(())
}

/// Runs until the input ends, as it also does when the process at its other end is killed.
fn stand() -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
