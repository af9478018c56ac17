//! A system clock that a test sets: processes that are started with it see its jumps immediately, without a restart.
//!
//! A preloaded library replaces `clock_gettime` of libc, and adds the offset in a file to the time of day. The clock
//! that never jumps is unchanged. The same library can give a process a separate resolv.conf(5).

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *at = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) offset = at;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_REALTIME && offset) now->tv_sec += *offset;
  return failed;
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0;
  va_end(rest);
  const char *ours = getenv("TEST_RESOLV_CONF");
  if (ours && !strcmp(path, "/etc/resolv.conf")) path = ours;
  return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
"#;

const DAY: i64 = 24 * 3600;

/// See the module's documentation.
pub(crate) struct Clock {
    folder: tempfile::TempDir,
    file: std::fs::File,
}

impl Clock {
    /// One that is right. Needs the C compiler that links Rust's programs.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("clock.c");
        std::fs::write(&source, LIBRARY).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("clock.so"))
            .arg(&source)
            .status();
        assert!(built.unwrap().success());
        let file = std::fs::File::create(folder.path().join("offset")).unwrap();
        let clock = Self { folder, file };
        clock.set_days(0);
        clock
    }

    /// By how many days it is ahead from now on.
    pub(crate) fn set_days(&self, days: i64) {
        self.set_seconds(days * DAY);
    }

    /// By how many seconds it is ahead from now on.
    pub(crate) fn set_seconds(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// The environment of a process that uses it.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let path = |name: &str| path(self.folder.path(), name);
        vec![
            ("LD_PRELOAD".to_owned(), path("clock.so")),
            ("TEST_CLOCK".to_owned(), path("offset")),
        ]
    }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}
