#include "framework/distributed/agreement.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <sstream>

#include "framework/core/error.h"
#include "framework/core/exit_codes.h"
#include "framework/core/tensor.h"
#include "framework/distributed/store.h"

namespace lockstep {
namespace {

template <class T>
std::vector<T> all_gather(ProcessGroup& group, const std::vector<T>& mine, const std::string& what) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor in = Tensor::from_host(std::span(mine), {count});
  const Tensor out = Tensor::empty({group.size() * count}, in.dtype());
  group.all_gather(in, out, what).wait();
  return out.to_host<T>();
}

std::string first_difference(const std::string& expected, const std::string& got) {
  std::istringstream expected_lines(expected);
  std::istringstream got_lines(got);
  std::string expected_line;
  std::string got_line;
  do {
    if (!std::getline(expected_lines, expected_line)) expected_line = "nothing more";
    if (!std::getline(got_lines, got_line)) got_line = "nothing more";
  } while (expected_line == got_line && got_line != "nothing more");
  return fmt::format("rank 0 has {}, this rank has {}", expected_line, got_line);
}

void expect_same(const std::vector<std::string>& texts, int rank, const std::string& what) {
  const std::string& text = texts[static_cast<std::size_t>(rank)];
  const auto differs = std::ranges::find_if(texts, [&](const std::string& other) { return other != texts.front(); });
  if (differs == texts.end()) return;
  expect(text == texts.front(), "rank {}: expected the same {} on every rank: {}", rank, what,
         first_difference(texts.front(), text));
  throw std::invalid_argument(
      fmt::format("rank {}: expected the same {} on every rank, but rank {} differs from rank 0", rank, what,
                  differs - texts.begin()));
}

}  // namespace

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& what, const std::string& text) {
  if (group.size() == 1) return {text};
  if (Store* const store = group.store(); store != nullptr) return store->gather(what, text, kAgreementTime);
  const auto lengths = all_gather(group, std::vector{static_cast<std::int32_t>(text.size())}, what);
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(lengths));
  std::vector<std::uint8_t> padded(text.begin(), text.end());
  padded.resize(longest);
  const std::vector<std::uint8_t> all = all_gather(group, padded, what);
  std::vector<std::string> texts;
  for (const std::int32_t length : lengths) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(texts.size() * longest);
    texts.emplace_back(begin, begin + length);
  }
  return texts;
}

std::string from_rank_0(ProcessGroup& group, const std::string& what, const std::function<std::string()>& work) {
  if (group.size() == 1) return work();
  std::exception_ptr thrown;
  std::string outcome;  // an exit code of one digit, and what was returned or thrown
  if (group.rank() == 0) {
    try {
      outcome = "0" + work();
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      outcome = std::to_string(exit_code_of(error)) + error.what();
    }
  }
  outcome = gather_texts(group, what, outcome).front();
  if (thrown) std::rethrow_exception(thrown);
  const int code = outcome.front() - '0';
  outcome.erase(0, 1);
  if (code == kWrongUsage) throw std::invalid_argument(outcome);
  if (code == kContradicted) throw LinkContradiction(outcome);
  if (code != 0) throw Error(outcome);
  return outcome;
}

void expect_agreement(ProcessGroup& group, const std::string& what, const std::string& text) {
  expect_same(gather_texts(group, what, text), group.rank(), what);
}

void expect_agreement(Store& store, const std::string& what, const std::string& text) {
  expect_same(store.gather(what, text, std::chrono::minutes(1)), store.rank(), what);
}

}  // namespace lockstep
