// ringctl within the test's own process: what it prints, and how it ends. Main thread only.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cli/ringctl.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::cli {

// While it lives a stream of this process goes to another descriptor.
class Redirect {
 public:
  Redirect(std::FILE* stream, int target) : stream_(stream), kept_(dup(fileno(stream))) {
    std::fflush(stream_);
    dup2(target, fileno(stream_));
  }
  ~Redirect() {
    std::fflush(stream_);
    dup2(kept_, fileno(stream_));
    close(kept_);
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  std::FILE* stream_;
  int kept_;
};

// While it lives a variable of the environment has another value.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    const char* const before = std::getenv(name_.c_str());
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    if (had_) {
      setenv(name_.c_str(), before_.c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const std::string name_;
  bool had_ = false;
  std::string before_;
};

// `words` as main gets them: what it does to them stays.
inline int RunRingctl(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return Run(static_cast<int>(argv.size()), argv.data());
}

struct Outcome {
  std::string out, err;
  int code = 0;
};

inline Outcome RunToFiles(const std::string& folder, std::vector<std::string> words) {
  const std::string out = folder + "/out", err = folder + "/err";
  const int out_file = creat(out.c_str(), 0600), err_file = creat(err.c_str(), 0600);
  Outcome outcome;
  {
    const Redirect redirect_out(stdout, out_file), redirect_err(stderr, err_file);
    outcome.code = RunRingctl(words);
  }
  close(out_file);
  close(err_file);
  outcome.out = ReadWhole(out);
  outcome.err = ReadWhole(err);
  return outcome;
}

}  // namespace ringmaster::cli
