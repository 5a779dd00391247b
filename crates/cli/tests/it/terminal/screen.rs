//! A terminal of a fixed size with a command in it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::command::scene::Scene;

pub(super) struct Terminal {
    child: Child,
    control: File,
    parser: vt100::Parser,
    raw: Vec<u8>,
}

impl Terminal {
    pub(super) fn start(scene: &Scene, line: &str, size: (u16, u16)) -> Self {
        Self::start_with(scene, line, size, &[])
    }

    pub(super) fn start_with(
        scene: &Scene,
        line: &str,
        (columns, rows): (u16, u16),
        env: &[(&str, &str)],
    ) -> Self {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&control).unwrap();
        unlockpt(&control).unwrap();
        let name = ptsname(&control, Vec::new()).unwrap().into_string().unwrap();
        let line_end = File::options().read(true).write(true).open(name).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&line_end, size).unwrap();
        // `setsid` makes it the terminal of the command, so that Ctrl-C reaches it.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_sickbay")).args(line.split_whitespace());
        command.current_dir(scene.path("")).envs(env.iter().copied());
        command.env_remove("SICKBAY_STORE").env_remove("COLUMNS").env("TERM", "xterm-256color");
        if env.iter().all(|(name, _)| *name != "NO_COLOR") {
            command.env_remove("NO_COLOR");
        }
        let end = || Stdio::from(OwnedFd::from(line_end.try_clone().unwrap()));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let parser = vt100::Parser::new(rows, columns, 500);
        Self { child, control: File::from(control), parser, raw: Vec::new() }
    }

    /// Reads a part of what is drawn; false if nobody draws any more.
    fn read(&mut self) -> bool {
        let mut part = [0; 512];
        // A terminal whose last process is gone is an error to read.
        let Ok(count @ 1..) = self.control.read(&mut part) else { return false };
        self.parser.process(&part[..count]);
        self.raw.extend_from_slice(&part[..count]);
        true
    }

    /// Reads until the screen is as it should be, and answers it.
    pub(super) fn wait_until(&mut self, is_right: impl Fn(&str) -> bool) -> String {
        loop {
            let screen = self.screen();
            if is_right(&screen) {
                return screen;
            }
            assert!(self.read(), "it ended with this on the screen:\n{screen}");
        }
    }

    pub(super) fn wait_for(&mut self, words: &str) {
        self.wait_until(|screen| screen.contains(words));
    }

    pub(super) fn type_in(&mut self, keys: &str) {
        self.control.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads to the end, and answers the exit code.
    pub(super) fn ended(&mut self) -> i32 {
        while self.read() {}
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// What is to be seen.
    pub(super) fn screen(&self) -> String {
        self.parser.screen().contents().trim_end().to_owned()
    }

    /// All that was written, with every order to the terminal.
    pub(super) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    pub(super) fn is_bold(&self, row: u16, column: u16) -> bool {
        self.parser.screen().cell(row, column).is_some_and(vt100::Cell::bold)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
