// What a story says, line by line. Thread-compatible.
#pragma once

#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/logic/scenario_command.h"

namespace ringmaster::coordinator {

// Notes and saves are written down where a story asks for them; of what `given` plays nothing is;
// one message to several workers is one line.
class Page {
 public:
  explicit Page(bool everything) : everything_(everything) {}

  // A line of the story itself.
  void Begin(const std::string& line) {
    Flush();
    text_ += line + "\n";
  }
  void Line(const std::string& said) {
    if (quiet_ && !everything_) return;
    Flush();
    text_ += "  " + said + "\n";
  }
  // One of what is hidden by default: `notes` or `saves`.
  void Line(const std::string& kind, const std::string& said) {
    if (everything_ || shown_.contains(kind)) Line(said);
  }
  void Send(const std::string& name, const std::string& message) {
    if (quiet_ && !everything_) return;
    if (message != message_ || everything_) Flush();
    message_ = message;
    receivers_.push_back(name);
  }

  void Show(const std::string& kind, bool shown) {
    if (kind != "notes" && kind != "saves") throw std::runtime_error("nothing is called " + kind);
    shown ? (void)shown_.insert(kind) : (void)shown_.erase(kind);
  }
  void set_quiet(bool quiet) {
    Flush();
    quiet_ = quiet;
  }
  [[nodiscard]] bool everything() const { return everything_; }

  void Clear() {
    receivers_.clear();
    text_.clear();
  }
  [[nodiscard]] std::string Text() {
    Flush();
    return text_;
  }

 private:
  void Flush() {
    const std::vector<std::string> receivers = std::exchange(receivers_, {});
    if (!receivers.empty()) text_ += fmt::format("  send {}: {}\n", List(receivers), message_);
  }

  const bool everything_;
  std::set<std::string> shown_;
  bool quiet_ = false;
  std::vector<std::string> receivers_;  // of `message_`, which is not written down yet
  std::string message_, text_;
};

}  // namespace ringmaster::coordinator
