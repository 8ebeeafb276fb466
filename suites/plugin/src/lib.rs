//! A program's core in a library of its own, as embedders and interpreters ship theirs: it opens libcuda by itself. Opened with
//! RTLD_DEEPBIND its `dlsym` is libc's, whatever is preloaded (R8). Preloaded it is
//! besides what libfaketime is: it can have the clock stand still (P17).

mod ffi;
