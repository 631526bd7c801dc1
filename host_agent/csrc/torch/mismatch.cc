#include "torch/mismatch.h"

#include <thread>

namespace netreduce {
namespace {

std::string key_of(int rank) { return "mismatch/" + std::to_string(rank); }

}  // namespace

std::vector<std::string> exchange_calls(c10d::Store& store, int rank, int size, const std::string& call,
                                        std::chrono::milliseconds patience) {
  std::vector<std::string> calls(size, "(no word from this rank)");
  calls[rank] = call;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  try {
    store.set(key_of(rank), call);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      // check() instead of wait(): a blocking wait would hold the store's connection.
      while (!store.check({key_of(peer)})) {
        if (std::chrono::steady_clock::now() > deadline) return calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      calls[peer] = store.get_to_str(key_of(peer));
    }
  } catch (const std::exception&) {
    // The store's host may have gone after its own mismatch error; what is known so far is still useful.
  }
  return calls;
}

std::string join_calls(const std::vector<std::string>& calls) {
  std::string text;
  for (size_t rank = 0; rank < calls.size(); ++rank)
    text += (rank ? "; rank " : "rank ") + std::to_string(rank) + ": " + calls[rank];
  return text;
}

}  // namespace netreduce
