// Tells every rank what the others did when the ranks' calls differ.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace netreduce {

// Publishes this rank's call in `store` and collects the others', for up to `patience`. A mismatch ends the
// process group, so this happens once and the keys need no call number. Returns one line per rank; a rank
// whose word is missing says so. Errors of the store end the collection, not the program.
std::vector<std::string> exchange_calls(c10d::Store& store, int rank, int size, const std::string& call,
                                        std::chrono::milliseconds patience);

// "rank 0: all_reduce(…); rank 1: …"
std::string join_calls(const std::vector<std::string>& calls);

}  // namespace netreduce
