//! How far along? A bar on standard error where that is a terminal; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of bytes read.
pub(super) struct Reading(ProgressBar);

impl Reading {
    /// For the input of this name. Hidden where standard error is no terminal.
    pub(super) fn new(name: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        let style = "{spinner} reading {msg}  {bytes}{prefix}  {binary_bytes_per_sec}  {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(name.to_string());
        Reading(bar)
    }

    /// So many bytes of so many.
    pub(super) fn tell(&self, read: u64, total: Option<u64>) {
        if let (Some(total), 0) = (total, self.0.position()) {
            self.0.set_prefix(format!(" of {}", indicatif::BinaryBytes(total)));
        }
        self.0.set_position(read);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A spinner while something without a measure goes on.
pub(super) struct Working(ProgressBar);

impl Working {
    /// Says what.
    pub(super) fn new(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_string());
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        Working(bar)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar of operations done.
pub(super) struct Counting(ProgressBar);

impl Counting {
    /// Towards so many.
    pub(super) fn new(what: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len}  eta {eta}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_string());
        Counting(bar)
    }

    /// So many done.
    pub(super) fn tell(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
