//! What the command lines of programs have in common: messages, standard output, man pages.

#[cfg(feature = "command-line")]
pub mod arguments;
#[cfg(feature = "manual")]
pub mod manual;
#[cfg(feature = "command-line")]
pub mod output;
