//! EDGE: the terminal: draws views as they arrive, and waits for keys and signals.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;
use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm::execute;

use crate::arguments::Arguments;
use crate::collector::Collector;
use crate::screen;
use crate::view::View;

/// Shows views until a key or a signal ends it. The terminal is restored in every case.
pub fn run(arguments: Arguments) -> io::Result<()> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(io::Error::other("not a terminal; use --once"));
    }
    // Blocked before another thread starts, which would take the signals otherwise.
    let signals = SigSet::from_iter([SIGTERM, SIGINT, SIGHUP, SIGWINCH]);
    signals.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&signals, flags)?;
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let ready = Arc::new(EventFd::from_flags(flags)?);

    let (wake, interval) = (Arc::clone(&ready), arguments.interval);
    let (views, received) = sync_channel(1);
    let (_running, stop) = channel::<()>();
    // It waits for an agent that is slow, while keys have an effect. It ends with the process.
    thread::Builder::new().spawn(move || {
        let mut collector = Collector::new(arguments);
        while views.send(collector.read()).is_ok() && wake.write(1).is_ok() {
            let _waited = stop.recv_timeout(interval);
        }
    })?;

    let mut terminal = ratatui::try_init()?;
    // The hook of the library does not show the cursor.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _shown = execute!(io::stdout(), Show);
        hook(info);
    }));
    let shown = show(&mut terminal, &received, &signals, &ready);
    drop(terminal);
    shown.and(ratatui::try_restore())
}

fn show(
    terminal: &mut DefaultTerminal,
    views: &Receiver<View>,
    signals: &SignalFd,
    ready: &EventFd,
) -> io::Result<()> {
    let (mut view, mut first, stdin) = (None, 0, io::stdin());
    loop {
        terminal.draw(|frame| match &view {
            Some(view) => screen::draw(view, first, frame.buffer_mut()),
            None => frame.render_widget("reading …", frame.area()),
        })?;
        let waiting = [stdin.as_fd(), signals.as_fd(), ready.as_fd()];
        let mut waiting = waiting.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut waiting, PollTimeout::NONE)?;
        let [keys, ..] = waiting.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if keys.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return Ok(());
        }
        while let Some(signal) = signals.read_signal()? {
            // The next frame has the new size.
            if signal.ssi_signo != nix::libc::SIGWINCH.cast_unsigned() {
                return Ok(());
            }
        }
        if ready.read().is_ok() {
            view = views.try_recv().ok().or(view);
        }
        while keys.contains(PollFlags::POLLIN) && event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                match scrolled(key, first) {
                    Some(scrolled) => first = scrolled,
                    None => return Ok(()),
                }
            }
        }
        let incidents = view.iter().flat_map(|view| &view.incidents);
        let count: usize = incidents.map(Vec::len).sum();
        first = first.min(count.saturating_sub(1));
    }
}

/// Returns the first incident after a key; `None` if the key ends the program.
fn scrolled(key: KeyEvent, first: usize) -> Option<usize> {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => None,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => None,
        KeyCode::Up => Some(first.saturating_sub(1)),
        KeyCode::Down => Some(first.saturating_add(1)),
        KeyCode::PageUp => Some(first.saturating_sub(10)),
        KeyCode::PageDown => Some(first.saturating_add(10)),
        _ => Some(first),
    }
}
