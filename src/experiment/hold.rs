//! Holds a workload that is a command of somebody else's, so that it ends when the run does, however the run ends.
//!
//! The command runs in a process group of its own. Whoever holds it watches its standard input: when that ends, the run is gone or wants no
//! more, and the whole group is killed. Its status is passed on.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::switch::leave_the_terminal;

/// How often it is looked whether the command has ended.
const TICK: u16 = 50;

/// Runs `sh -c COMMAND` until it ends or standard input does. Gives the code to exit with.
///
/// # Errors
/// It cannot be started.
pub fn hold(command: &str) -> Result<u8, String> {
    leave_the_terminal();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("sh -c `{command}`: {e}"))?;
    loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Ok(code(status)),
            Err(e) => return Err(format!("sh -c `{command}` cannot be waited for: {e}")),
        }
        if is_over(&io::stdin()) {
            return Ok(end(&mut child));
        }
    }
}

fn end(child: &mut Child) -> u8 {
    let _ = killpg(Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)), Signal::SIGKILL);
    child.wait().map_or(1, code)
}

/// Waits a moment. Has the line ended?
fn is_over(line: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(line.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(TICK)) {
        Ok(0) | Err(Errno::EINTR) => false,
        Ok(_) => !matches!(nix::unistd::read(line.as_fd(), &mut [0; 64]), Ok(1..)),
        Err(_) => true,
    }
}

/// As a shell tells it: 128 and the signal of what was killed.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|s| 128 + s));
    code.and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
}
