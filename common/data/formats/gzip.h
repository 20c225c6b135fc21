// Gzip files (RFC 1952) by zlib: one member, read whole into memory, and written without a time
// stamp or a name, so that the same content is the same file. Thread-safe (free functions) but for
// GzipWriter, which is thread-compatible.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::data {

// What a compressed file may hold: it is kept in memory.
inline constexpr uint64_t kMaxGunzipped = uint64_t{2} << 30;

struct GzipSource {
  std::string name;     // of the file, for messages
  int descriptor = -1;  // open for reading
  uint64_t bytes = 0;   // compressed
  uint64_t begin = 0;   // its place in the file
  bool is_gzip = true;  // else a bare deflate stream, as zip archives have
  uint32_t crc32 = 0;   // of the content of a bare stream, which does not say it
};

// The first `count` bytes, fewer when the content is shorter.
[[nodiscard]] StatusOr<std::vector<uint8_t>> GunzipStart(const GzipSource& source, size_t count);

// The content, which must have exactly `bytes`. `seen` gets every compressed byte in order.
// FAILED_PRECONDITION: it is no gzip file, damaged (its CRC is checked), cut, of another size, or
// something follows it; RESOURCE_EXHAUSTED: past kMaxGunzipped, or no memory for it.
[[nodiscard]] StatusOr<std::vector<uint8_t>> Gunzip(
    const GzipSource& source, uint64_t bytes,
    const std::function<void(std::span<const uint8_t>)>& seen);

// Goes on from the CRC-32 of what came before; 0 at the begin.
[[nodiscard]] uint32_t Crc32(uint32_t before, std::span<const uint8_t> bytes);

class GzipWriter {
 public:
  explicit GzipWriter(std::ofstream* file);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  // A failure is the file's, which its owner looks at.
  void Write(std::span<const uint8_t> bytes);
  void Finish();

 private:
  struct Stream;
  void Deflate(std::span<const uint8_t> bytes, int flush);
  std::ofstream* const file_;
  const std::unique_ptr<Stream> stream_;
};

}  // namespace ringmaster::data
