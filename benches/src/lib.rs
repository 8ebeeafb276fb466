//! Benchmarks: hook overhead, ledger contention, mock speed. Each compares two things in one run and has a null
//! test beside it, a thing against itself: a difference below what the null test shows is noise.
