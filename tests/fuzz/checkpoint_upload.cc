// The pieces of a checkpoint that is uploaded: a byte of choices and a text each. The choices make
// a piece's place right, and make a manifest of what came, so that more than refusals is reached.
#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "common/check.h"
#include "common/files.h"
#include "common/sha256.h"
#include "coordinator/store/manifest.h"
#include "coordinator/store/staged_checkpoint.h"
#include "tests/fuzz/input.h"

namespace ringmaster {
namespace {

constexpr uint64_t kMaxBytes = 4096;

std::string ShaOf(const std::string& bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return Hex(hash.Finish());
}

std::string ManifestOf(const std::map<std::string, std::string>& files) {
  const std::string digest(64, 'd');
  std::string text = R"({"format":1,"step":7,"exact":true,"digest":")" + digest +
                     R"(","result_digest":")" + digest + R"(","files":[)";
  for (const auto& [name, bytes] : files) {
    if (!text.ends_with('[')) text += ",";
    text += R"({"name":")" + name + R"(","bytes":)" + std::to_string(bytes.size()) +
            R"(,"sha256":")" + ShaOf(bytes) + "\"}";
  }
  return text + "]}";
}

std::string ContentOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace
}  // namespace ringmaster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  static const std::filesystem::path folder = "/dev/shm/fuzz-upload-" + std::to_string(getpid());
  [[maybe_unused]] static const int removed =
      std::atexit([] { std::filesystem::remove_all(folder); });
  std::filesystem::create_directories(folder / "staged");
  coordinator::StagedCheckpoint staged(folder / "staged", folder / "target", 7, kMaxBytes);
  std::map<std::string, std::string> files;  // as they were sent
  std::string open;
  fuzz::Input input(data, size);
  while (!input.empty()) {
    const uint8_t choices = input.Byte();
    v1::FilePiece piece;
    const std::string text = input.Text();
    if (!piece.ParseFromString(text)) piece.set_data(text);
    if ((choices & 1) != 0) piece.set_name(std::string("file") + "abcd"[choices >> 6]);
    if ((choices & 2) != 0 && !open.empty()) piece.set_name(open);
    if ((choices & 4) != 0) {
      const bool goes_on = !open.empty() && piece.name() == open;
      piece.set_offset(goes_on ? files[open].size() : 0);
    }
    if ((choices & 8) != 0 && open.empty()) {
      piece.set_name(coordinator::kManifestName);
      piece.set_data(ManifestOf(files));
      piece.set_last(true);
    }
    if (!staged.Write(piece).ok()) return 0;
    open = piece.last() ? "" : piece.name();
    files[piece.name()] += piece.data();
    uint64_t bytes = 0;
    for (const auto& [name, content] : files) {
      RING_CHECK(IsPlainFileName(name), "a name that leaves its folder");
      RING_CHECK(ContentOf(folder / "staged" / name) == content, "on the disk as it came");
      bytes += content.size();
    }
    RING_CHECK(bytes <= kMaxBytes, "no more than it may have");
  }
  if (!staged.Finish().ok()) return 0;
  files.erase(coordinator::kManifestName);
  RING_CHECK(files.size() == staged.manifest().files.size(), "what the manifest lists");
  for (const auto& [name, content] : files) {
    RING_CHECK(staged.manifest().files.at(name).sha256 == ShaOf(content), "what the manifest says");
  }
  return 0;
}
