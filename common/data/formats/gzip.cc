#include "common/data/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "common/check.h"
#include "common/data/beneath.h"

namespace ringmaster::data {
namespace {

constexpr size_t kChunk = size_t{256} << 10;
// Window bits of zlib: the largest window, gzip's wrapper or none.
constexpr int kGzipOnly = 15 + 16, kBare = -15;
constexpr uint64_t kLargestExpansion = 1032;  // of deflate (zlib's technical details)
constexpr uint8_t kUnknownSystem = 255;

// One inflation of a file, chunk by chunk, into memory that the caller gives.
class Inflation {
 public:
  explicit Inflation(const GzipSource& source) : source_(source), chunk_(kChunk) {
    RING_CHECK(inflateInit2(&stream_, source.is_gzip ? kGzipOnly : kBare) == Z_OK, "inflateInit2");
  }
  ~Inflation() { inflateEnd(&stream_); }
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;

  // Fills `out` from its begin; less when the stream ends before. `seen` as in Gunzip.
  StatusOr<size_t> Fill(std::span<uint8_t> out,
                        const std::function<void(std::span<const uint8_t>)>& seen) {
    size_t done = 0;
    while (done < out.size() && !ended_) {
      if (stream_.avail_in == 0) RING_RETURN_IF_ERROR(Refill(seen));
      const size_t room = std::min(out.size() - done, size_t{1} << 30);
      stream_.next_out = out.data() + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (result == Z_STREAM_END) ended_ = true;
      if (result != Z_STREAM_END && result != Z_OK && result != Z_BUF_ERROR) return Damaged();
    }
    return done;
  }
  // Compressed bytes behind the end of the stream.
  [[nodiscard]] uint64_t left() const { return source_.bytes - offset_ + stream_.avail_in; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  Status Refill(const std::function<void(std::span<const uint8_t>)>& seen) {
    const uint64_t left = source_.bytes - offset_;
    if (left == 0) {
      return FailedPrecondition(
          "{} ends after {} bytes in the middle of its {} stream: it is "
          "truncated; copy it again",
          source_.name, source_.bytes, kind());
    }
    const std::span<uint8_t> chunk(chunk_.data(), std::min<uint64_t>(left, chunk_.size()));
    RING_RETURN_IF_ERROR(
        Annotate(ReadExactly(source_.descriptor, source_.begin + offset_, chunk), source_.name));
    if (seen) seen(chunk);
    offset_ += chunk.size();
    stream_.next_in = chunk.data();
    stream_.avail_in = static_cast<uInt>(chunk.size());
    return absl::OkStatus();
  }
  Status Damaged() const {
    const uint64_t offset = offset_ - stream_.avail_in;
    if (source_.is_gzip && stream_.total_out == 0 && offset <= 10) {
      return FailedPrecondition("{} is no gzip file ({}), but for its name", source_.name,
                                stream_.msg == nullptr ? "no header" : stream_.msg);
    }
    return FailedPrecondition("{} near offset {}: its {} stream is damaged ({}); copy it again",
                              source_.name, offset, kind(),
                              stream_.msg == nullptr ? "" : stream_.msg);
  }
  [[nodiscard]] const char* kind() const { return source_.is_gzip ? "gzip" : "deflate"; }

  const GzipSource source_;
  std::vector<uint8_t> chunk_;
  uint64_t offset_ = 0;  // read so far
  bool ended_ = false;
  z_stream stream_ = {};
};

Status CheckClaim(const GzipSource& source, uint64_t bytes) {
  if (bytes > kMaxGunzipped) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "{}: by its header it holds {} bytes; a compressed file is kept in memory and may "
                 "hold {}: {}",
                 source.name, bytes, kMaxGunzipped,
                 source.is_gzip ? "gunzip it, or split it" : "write it with np.savez");
  }
  if (bytes / kLargestExpansion <= source.bytes) return absl::OkStatus();
  return FailedPrecondition(
      "{}: by its header it holds {} bytes, more than {} bytes of {} can become", source.name,
      bytes, source.bytes, source.is_gzip ? "gzip" : "deflate");
}

StatusOr<std::vector<uint8_t>> Allocate(const GzipSource& source, uint64_t bytes) {
  try {
    return std::vector<uint8_t>(bytes);
  } catch (const std::bad_alloc&) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "{}: there is no memory for its {} bytes; {}", source.name, bytes,
                 source.is_gzip ? "gunzip it" : "write it with np.savez");
  }
}

}  // namespace

StatusOr<std::vector<uint8_t>> GunzipStart(const GzipSource& source, size_t count) {
  std::vector<uint8_t> start(count);
  Inflation inflation(source);
  RING_ASSIGN_OR_RETURN(const size_t got, inflation.Fill(start, nullptr));
  start.resize(got);
  return start;
}

StatusOr<std::vector<uint8_t>> Gunzip(const GzipSource& source, uint64_t bytes,
                                      const std::function<void(std::span<const uint8_t>)>& seen) {
  RING_RETURN_IF_ERROR(CheckClaim(source, bytes));
  RING_ASSIGN_OR_RETURN(std::vector<uint8_t> content, Allocate(source, bytes));
  Inflation inflation(source);
  RING_ASSIGN_OR_RETURN(const size_t got, inflation.Fill(content, seen));
  if (got < bytes) {
    return FailedPrecondition("{} holds {} bytes, by its header {}: it is truncated", source.name,
                              got, bytes);
  }
  // The end of the stream, with its CRC, and nothing before it.
  uint8_t more = 0;
  RING_ASSIGN_OR_RETURN(const size_t excess, inflation.Fill({&more, 1}, seen));
  if (excess > 0) {
    return FailedPrecondition("{} holds more than the {} bytes of its header", source.name, bytes);
  }
  if (inflation.left() > 0) {
    return FailedPrecondition("{}: {} bytes follow the end of its {} stream", source.name,
                              inflation.left(), source.is_gzip ? "gzip" : "deflate");
  }
  if (!source.is_gzip && Crc32(0, content) != source.crc32) {
    return FailedPrecondition("{}: its CRC-32 is another one: it is damaged; copy it again",
                              source.name);
  }
  return content;
}

uint32_t Crc32(uint32_t before, std::span<const uint8_t> bytes) {
  return static_cast<uint32_t>(crc32_z(before, bytes.data(), bytes.size()));
}

struct GzipWriter::Stream {
  z_stream zlib = {};
  gz_header header = {};
};

GzipWriter::GzipWriter(std::ofstream* file) : file_(file), stream_(std::make_unique<Stream>()) {
  constexpr int kMemoryLevel = 8;
  RING_CHECK(deflateInit2(&stream_->zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipOnly,
                          kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK,
             "deflateInit2");
  stream_->header.os = kUnknownSystem;
  RING_CHECK(deflateSetHeader(&stream_->zlib, &stream_->header) == Z_OK, "deflateSetHeader");
}

GzipWriter::~GzipWriter() { deflateEnd(&stream_->zlib); }

void GzipWriter::Write(std::span<const uint8_t> bytes) { Deflate(bytes, Z_NO_FLUSH); }
void GzipWriter::Finish() { Deflate({}, Z_FINISH); }

void GzipWriter::Deflate(std::span<const uint8_t> bytes, int flush) {
  z_stream& zlib = stream_->zlib;
  std::vector<uint8_t> out(kChunk);
  zlib.next_in = const_cast<uint8_t*>(bytes.data());  // zlib does not write to it
  zlib.avail_in = static_cast<uInt>(bytes.size());
  do {
    zlib.next_out = out.data();
    zlib.avail_out = static_cast<uInt>(out.size());
    RING_CHECK(deflate(&zlib, flush) != Z_STREAM_ERROR, "deflate");
    file_->write(reinterpret_cast<const char*>(out.data()),
                 static_cast<std::streamsize>(out.size() - zlib.avail_out));
  } while (zlib.avail_out == 0);
}

}  // namespace ringmaster::data
