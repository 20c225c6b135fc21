// Fetches a dataset from an address as a worker does, a piece at a time and several side by side,
// for tests/integration/url_test.py: fetch_probe URL FOLDER [--http] [--private] [--s3-endpoint
// URL] ... Prints a line of JSON for each file; what went wrong goes to stderr as CODE: MESSAGE,
// exit code 1.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/credentials.h"
#include "common/signals.h"
#include "worker/fetch/url_source.h"

namespace ringmaster::worker {
namespace {

struct ProbeOptions {
  std::string url, folder;
  UrlOptions urls;
  int64_t first_pause_ms = 10, slow_seconds = 30, deadline_ms = 60'000, connect_ms = 10'000;
  bool stops = false;  // at the end of stdin
  uint64_t piece = kPieceBytes;
  size_t threads = 4;
};

struct Piece {
  const SourceFile* file;
  uint64_t offset, bytes;
};

// Pieces of files, read by several threads; the first error ends it.
class Probe {
 public:
  Probe(PieceSource* source, const ProbeOptions& options, const FetchLimits& limits)
      : source_(source), options_(options), limits_(limits) {}

  Status Fetch(const std::vector<SourceFile>& files) {
    for (const SourceFile& file : files) {
      const std::filesystem::path path = std::filesystem::path(options_.folder) / file.name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path).close();
      std::filesystem::resize_file(path, file.bytes);
      for (uint64_t at = 0; at < file.bytes; at += options_.piece) {
        pieces_.push_back({&file, at, std::min(options_.piece, file.bytes - at)});
      }
    }
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < options_.threads; ++i) threads.emplace_back([this] { Work(); });
    threads.clear();
    const MutexLock lock(mu_);
    return status_;
  }

 private:
  void Work() {
    for (size_t i = next_++; i < pieces_.size(); i = next_++) {
      const Piece& piece = pieces_[i];
      std::vector<uint8_t> bytes(piece.bytes);
      const Status status = source_->Read(*piece.file, piece.offset, bytes, limits_);
      if (!status.ok()) {
        const MutexLock lock(mu_);
        if (status_.ok()) status_ = status;
        next_ = pieces_.size();
        return;
      }
      std::fstream file(std::filesystem::path(options_.folder) / piece.file->name,
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(piece.offset));
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
  }

  PieceSource* const source_;
  const ProbeOptions& options_;
  const FetchLimits limits_;
  std::vector<Piece> pieces_;
  std::atomic<size_t> next_{0};
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

Status Run(const ProbeOptions& options) {
  std::stop_source stop;
  std::jthread stopper;
  if (options.stops) {
    stopper = std::jthread([&stop] {
      std::cin.ignore(std::numeric_limits<std::streamsize>::max());
      stop.request_stop();
    });
  }
  const FetchLimits limits{
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.deadline_ms),
      stop.get_token()};
  RING_ASSIGN_OR_RETURN(const auto source, MakeUrlSource(options.url, options.urls));
  RING_ASSIGN_OR_RETURN(const std::vector<SourceFile> files, source->List(limits));
  for (const SourceFile& file : files) {
    std::cout << nlohmann::json{{"name", file.name},
                                {"bytes", file.bytes},
                                {"pieces", file.pieces.size()},
                                {"version", file.version}}
              << "\n";
  }
  std::cout.flush();
  if (options.folder.empty()) return absl::OkStatus();
  return Probe(source.get(), options, limits).Fetch(files);
}

int Main(int argc, char** argv) {
  ProbeOptions options;
  CLI::App app{"fetch_probe"};
  app.add_option("URL", options.url)->required();
  app.add_option("FOLDER", options.folder,
                 "where files are written; absent: they are listed alone");
  app.add_flag("--http", options.urls.allow_http);
  app.add_flag("--private", options.urls.allow_private);
  app.add_option("--s3-endpoint", options.urls.s3_endpoint);
  app.add_option("--s3-region", options.urls.s3_region);
  app.add_option("--attempts", options.urls.http.attempts);
  app.add_option("--connections", options.urls.http.connections);
  app.add_option("--slow-bytes", options.urls.http.slow_bytes);
  app.add_option("--slow-seconds", options.slow_seconds);
  app.add_option("--connect-ms", options.connect_ms);
  app.add_option("--first-pause-ms", options.first_pause_ms);
  app.add_option("--deadline-ms", options.deadline_ms);
  app.add_flag("--stop-at-end-of-input", options.stops);
  app.add_option("--piece", options.piece);
  app.add_option("--threads", options.threads);
  CLI11_PARSE(app, argc, argv);
  options.urls.http.first_pause = std::chrono::milliseconds(options.first_pause_ms);
  options.urls.http.slow_time = std::chrono::seconds(options.slow_seconds);
  options.urls.http.connect_timeout = std::chrono::milliseconds(options.connect_ms);
  const Status status = Run(options);
  if (status.ok()) return 0;
  std::cerr << absl::StatusCodeToString(status.code()) << ": " << Message(status) << "\n";
  return 1;
}

}  // namespace
}  // namespace ringmaster::worker

int main(int argc, char** argv) {
  ringmaster::BlockSignals();
  // As in ringworker: datasets come from servers of TLS 1.2, too.
  if (const ringmaster::Status alone = ringmaster::UseTls13(); !alone.ok()) {
    std::cerr << ringmaster::Message(alone) << "\n";
    return 1;
  }
  return ringmaster::worker::Main(argc, argv);
}
