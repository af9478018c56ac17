//! Resident memory of the process: proc(5), `statm`.

use std::fs;

/// Returns the bytes of private resident memory; `None` if the system does not report them.
pub(crate) fn own() -> Option<u64> {
    let [resident, files] = statm()?;
    Some(resident.saturating_sub(files))
}

/// Returns the bytes of resident pages of files, mostly code and constants.
pub(super) fn files() -> Option<u64> {
    let [_, files] = statm()?;
    Some(files)
}

fn statm() -> Option<[u64; 2]> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let mut next = || Some(pages.next()?.ok()? * page_size());
    Some([next()?, next()?])
}

#[allow(unsafe_code)]
fn page_size() -> u64 {
    // SAFETY: the call only returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_known() {
        assert!(own().is_some_and(|bytes| bytes > 0));
        assert!(files().is_some_and(|bytes| bytes > 0));
    }
}
