#include "worker/ring/frame.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/crc32c.h"

namespace ringmaster::ring {
namespace {

using Header = std::array<uint8_t, kHeaderBytes>;

FrameHeader Example() {
  return {.job = 0x1122334455667788,
          .generation = {7, 9},
          .step = 1'000'000'000'000,
          .purpose = Purpose::kEvaluate,
          .phase = Phase::kAllGather,
          .bucket = 3,
          .chunk = 4,
          .segment = 5,
          .payload_bytes = 6,
          .payload_crc32c = 0xdeadbeef,
          .after = 0xa1b2c3d4};
}

Header Encoded(const FrameHeader& header) {
  Header bytes;
  Encode(header, bytes.data());
  return bytes;
}

// `bytes` with a header checksum that fits, so that the field behind it is what is tested.
Header Resealed(Header bytes) {
  const uint32_t crc = ExtendCrc32c(0, std::span(bytes).first(76));
  for (size_t i = 0; i < 4; ++i) bytes[76 + i] = static_cast<uint8_t>(crc >> (8 * i));
  return bytes;
}

bool Names(const StatusOr<FrameHeader>& decoded, const std::string& field) {
  return decoded.status().code() == absl::StatusCode::kInvalidArgument &&
         Message(decoded.status()).find(field) != std::string::npos;
}

std::vector<uint8_t> Numbers(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return bytes;
}

}  // namespace

TEST_CASE("Crc32c: the vectors of RFC 3720") {
  CHECK(ExtendCrc32c(0, {}) == 0);
  CHECK(ExtendCrc32c(0, std::vector<uint8_t>(32, 0)) == 0x8a9136aa);
  CHECK(ExtendCrc32c(0, std::vector<uint8_t>(32, 0xff)) == 0x62a8ab43);
  std::vector<uint8_t> rising(32);
  for (size_t i = 0; i < 32; ++i) rising[i] = static_cast<uint8_t>(i);
  CHECK(ExtendCrc32c(0, rising) == 0x46dd794e);
}

TEST_CASE("Crc32c: stripes and pieces give what one byte after the other gives") {
  const std::vector<uint8_t> bytes = Numbers(3 * 2048 * 2 + 777);
  for (const size_t size :
       {size_t{1}, size_t{7}, size_t{8}, size_t{6143}, size_t{6144}, size_t{6145}, bytes.size()}) {
    uint32_t slow = 0;
    for (size_t i = 0; i < size; ++i) slow = ExtendCrc32c(slow, std::span(bytes).subspan(i, 1));
    CHECK(ExtendCrc32c(0, std::span(bytes).first(size)) == slow);
  }
}

TEST_CASE("Crc32c: every length and start gives what one byte after the other gives") {
  const std::vector<uint8_t> bytes = Numbers(3000);
  for (size_t start = 0; start < 70; start += 23) {
    uint32_t slow = 0x12345678;
    for (size_t size = 0; start + size < bytes.size(); ++size) {
      if (ExtendCrc32c(0x12345678, std::span(bytes).subspan(start, size)) != slow) {
        FAIL(size << " bytes from " << start);
      }
      slow = ExtendCrc32c(slow, std::span(bytes).subspan(start + size, 1));
    }
  }
}

TEST_CASE("Frame: a header comes back as it was, and its bytes are fixed") {
  const Header bytes = Encoded(Example());
  const StatusOr<FrameHeader> decoded = Decode(bytes);
  REQUIRE(decoded.ok());
  CHECK(*decoded == Example());
  CHECK(std::string(bytes.begin(), bytes.begin() + 4) == "RING");
  CHECK(bytes[4] == 1);                            // version
  CHECK(bytes[6] == 2);                            // purpose
  CHECK(bytes[7] == 2);                            // phase
  CHECK((bytes[8] == 0x88 && bytes[15] == 0x11));  // job
  CHECK((bytes[16] == 7 && bytes[24] == 9));       // generation
  CHECK((bytes[40] == 3 && bytes[44] == 4 && bytes[48] == 5 && bytes[52] == 6));
  CHECK((bytes[56] == 0xef && bytes[59] == 0xde));  // checksum of the payload
  CHECK((bytes[60] == 0xd4 && bytes[63] == 0xa1));  // frames of the other way
}

TEST_CASE("Frame: decoding names the field that is wrong") {
  const Header good = Encoded(Example());
  CHECK(Names(Decode(std::span(good).first(79)), "length"));
  CHECK(Names(Decode(std::vector<uint8_t>(81)), "length"));
  Header bytes = good;
  bytes[0] = 'X';
  CHECK(Names(Decode(bytes), "magic"));
  bytes = good;
  bytes[4] = 2;
  CHECK(Names(Decode(bytes), "version"));
  bytes = good;
  bytes[33] ^= 0x10;  // the step, by a flipped bit
  CHECK(Names(Decode(bytes), "checksum"));
  bytes = good;
  bytes[6] = 3;
  CHECK(Names(Decode(Resealed(bytes)), "purpose"));
  bytes = good;
  bytes[7] = 0;
  CHECK(Names(Decode(Resealed(bytes)), "phase"));
  bytes = good;
  bytes[70] = 1;
  CHECK(Names(Decode(Resealed(bytes)), "reserved"));
}

TEST_CASE("Frame: no flipped bit of a header passes") {
  const Header good = Encoded(Example());
  for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    Header bytes = good;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    CHECK_FALSE(Decode(bytes).ok());
  }
}

TEST_CASE("Frame: a payload that is not what its header says is refused") {
  Frame frame;
  frame.payload = Payload(Numbers(1000));
  frame.header = Sealed(Example(), frame.payload);
  CHECK(CheckPayload(frame).ok());
  std::vector<uint8_t> flipped = Numbers(1000);
  flipped[500] ^= 1;
  frame.payload = Payload(flipped);
  CHECK(Message(CheckPayload(frame)).find("checksum") != std::string::npos);
  frame.payload = Payload(Numbers(999));
  CHECK(Message(CheckPayload(frame)).find("length") != std::string::npos);
}

TEST_CASE("Frame: a frame that is not the expected one says in which field") {
  const FrameHeader expected = Example();
  CHECK(CheckExpected(expected, expected).ok());
  const auto refused = [&](auto change, const std::string& field) {
    FrameHeader got = expected;
    change(got);
    const Status status = CheckExpected(got, expected);
    return status.code() == absl::StatusCode::kFailedPrecondition &&
           Message(status).find("frame " + field + ":") != std::string::npos;
  };
  CHECK(refused([](FrameHeader& h) { ++h.job; }, "job"));
  CHECK(refused([](FrameHeader& h) { --h.generation.counter; }, "generation"));
  CHECK(refused([](FrameHeader& h) { --h.generation.term; }, "generation"));
  CHECK(refused([](FrameHeader& h) { ++h.step; }, "step"));
  CHECK(refused([](FrameHeader& h) { h.purpose = Purpose::kStep; }, "purpose"));
  CHECK(refused([](FrameHeader& h) { h.phase = Phase::kReduceScatter; }, "phase"));
  CHECK(refused([](FrameHeader& h) { ++h.bucket; }, "bucket"));
  CHECK(refused([](FrameHeader& h) { ++h.chunk; }, "chunk"));
  CHECK(refused([](FrameHeader& h) { ++h.segment; }, "segment"));
}

TEST_CASE("Frame: jobs have hashes of their own") {
  CHECK(JobHash("job-1") != JobHash("job-2"));
  CHECK(JobHash("abc") == 0xeacf018fbf1678ba);  // SHA-256("abc") begins ba7816bf 8f01cfea
}

TEST_CASE("Payload: a reader gives the bytes of any cut, in place where they lie together") {
  const auto bytes = std::make_shared<const std::vector<uint8_t>>(Numbers(1000));
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{64}, size_t{333}, size_t{1000}}) {
    std::vector<Payload::Piece> pieces;
    for (size_t at = 0; at < bytes->size(); at += piece) {
      pieces.push_back(std::span(*bytes).subspan(at, std::min(piece, bytes->size() - at)));
    }
    const Payload payload(pieces, bytes);
    CHECK(payload.Copy() == *bytes);
    CHECK(payload.Crc32c() == ExtendCrc32c(0, *bytes));
    PayloadReader reader(payload);
    std::vector<uint8_t> read;
    for (size_t take = 0; reader.remaining() != 0; ++take) {
      const size_t count = std::min(take, reader.remaining());
      std::vector<uint8_t> side(count + 1);
      const uint8_t* const place = reader.Take(count, side.data());
      read.insert(read.end(), place, place + count);
    }
    CHECK(read == *bytes);
  }
  const Payload whole(Numbers(10));
  PayloadReader reader(whole);
  CHECK(reader.Take(4, nullptr) == whole.pieces()[0].data());
}

}  // namespace ringmaster::ring
