#include "common/data/pack.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/data/formats/gzip.h"
#include "common/data/sample_data.h"
#include "common/image/codecs.h"
#include "tests/support/image_data.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::data {
namespace {

enum class PartOrder : uint8_t { kForward, kBackward };

class PackFixture {
 protected:
  std::shared_ptr<const Dataset> Made(const std::string& format, uint64_t train, uint64_t test) {
    REQUIRE(
        MakeSampleData(folder_ / format, {.format = format, .train = train, .test = test}).ok());
    return Opened(format, format);
  }
  std::shared_ptr<const Dataset> Opened(const std::string& name, const std::string& format) {
    v1::DataSource source;
    source.set_path(name);
    source.set_format(format);
    auto dataset = Dataset::Open({folder_.path(), ""}, source);
    INFO(Message(dataset.status()));
    REQUIRE(dataset.ok());
    return *dataset;
  }
  Status Pack(const std::shared_ptr<const Dataset>& dataset, const std::string& name,
              const PackOptions& options, PartOrder order = PartOrder::kForward) {
    RING_ASSIGN_OR_RETURN(const auto packing, Packing::Create(dataset, folder_ / name, options));
    for (size_t i = 0; i < packing->parts(); ++i) {
      RING_RETURN_IF_ERROR(
          packing->WritePart(order == PartOrder::kForward ? i : packing->parts() - 1 - i));
    }
    return packing->Finish();
  }
  // Name and content of every file below.
  std::map<std::string, std::string> FilesOf(const std::string& name) {
    std::map<std::string, std::string> files;
    const std::filesystem::path root = folder_ / name;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file()) continue;
      std::ostringstream bytes;
      bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      files[entry.path().lexically_relative(root)] = bytes.str();
    }
    return files;
  }
  TemporaryFolder folder_;
};

int32_t LabelOf(const Dataset& dataset, Split split, uint64_t sample) {
  int32_t label[1] = {};
  REQUIRE(dataset.Read(1, split, sample, std::as_writable_bytes(std::span(label))).ok());
  return label[0];
}

std::vector<uint8_t> PixelsOf(const Dataset& dataset, Split split, uint64_t sample,
                              const image::Placement& placement) {
  std::vector<uint8_t> pixels(size_t{placement.kept.size.height} * placement.kept.size.width * 3);
  REQUIRE(dataset.ReadImage(0, split, sample, placement, pixels).ok());
  return pixels;
}

TEST_CASE_METHOD(PackFixture, "Pack: records of resized JPEGs, which tfrecord reads") {
  const auto source = Made("image_folder", 40, 10);
  REQUIRE(Pack(source, "packed", {.short_side = 24, .jpeg_quality = 80}).ok());
  const auto packed = Opened("packed", "tfrecord");
  for (const Split split : {Split::kTrain, Split::kTest}) {
    REQUIRE(packed->samples(split) == source->samples(split));
    for (uint64_t sample = 0; sample < source->samples(split); ++sample) {
      const image::Size from = source->image_size(0, split, sample);
      const image::Size to = image::WithShort(from, 24);
      REQUIRE(std::min(to.height, to.width) == 24);
      CHECK(packed->image_size(0, split, sample) == to);
      CHECK(LabelOf(*packed, split, sample) == LabelOf(*source, split, sample));
      const image::Placement placement = {{0, 0, from}, to, {0, 0, to}};
      const std::string jpeg =
          image::EncodeJpeg(PixelsOf(*source, split, sample, placement), to, 3, 80);
      const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(jpeg.data()),
                                          jpeg.size());
      std::vector<uint8_t> expected(size_t{to.height} * to.width * 3);
      REQUIRE(image::Render(file, *image::ReadHeader(file), image::Whole(to), 3, expected).ok());
      CHECK(PixelsOf(*packed, split, sample, image::Whole(to)) == expected);
    }
  }
  const auto files = FilesOf("packed");
  REQUIRE(files.size() == 2);
  REQUIRE(source->classes().size() == 10);
  for (const std::string& name : source->classes()) {
    CHECK(files.at("train-00000-of-00001").find(name) != std::string::npos);
  }
}

TEST_CASE_METHOD(PackFixture, "Pack: images that are small already keep their size") {
  const auto source = Made("image_folder", 10, 10);
  REQUIRE(Pack(source, "packed", {.short_side = 256}).ok());
  const auto packed = Opened("packed", "tfrecord");
  for (uint64_t sample = 0; sample < 10; ++sample) {
    CHECK(packed->image_size(0, Split::kTrain, sample) ==
          source->image_size(0, Split::kTrain, sample));
  }
}

TEST_CASE_METHOD(PackFixture, "Pack: pixels of one size are npy, part by part in any order") {
  const auto source = Made("cifar10", 600, 20);
  REQUIRE(Pack(source, "forward", {.short_side = 32, .jpeg_quality = {}}).ok());
  REQUIRE(
      Pack(source, "backward", {.short_side = 32, .jpeg_quality = {}}, PartOrder::kBackward).ok());
  CHECK(FilesOf("forward") == FilesOf("backward"));
  const auto packed = Opened("forward", "npy");
  REQUIRE(packed->samples(Split::kTrain) == 600);
  REQUIRE(packed->samples(Split::kTest) == 20);
  std::vector<uint8_t> expected(kCifarPixels), found(kCifarPixels);
  for (const uint64_t sample : {0, 255, 256, 511, 512, 599}) {
    const auto label = testing::ReadImage(*source, Split::kTrain, sample, expected);
    CHECK(*testing::ReadImage(*packed, Split::kTrain, sample, found) == *label);
    CHECK(found == expected);
  }
  CHECK(packed->facts().columns(1).use() == v1::COLUMN_USE_TARGET);
}

TEST_CASE_METHOD(PackFixture, "Pack: pixels of several sizes are refused, and nothing is left") {
  const auto source = Made("image_folder", 40, 10);
  const Status status = Pack(source, "packed", {.short_side = 24, .jpeg_quality = {}});
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Message(status).find("pixels are stored of one size only; leave out --raw") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder_ / "packed"));
  CHECK_FALSE(std::filesystem::exists(folder_ / "packed.partial"));
}

// What says of a PNG how large it is, of one that is never decoded.
std::string HeaderOfPng(uint32_t width, uint32_t height) {
  const auto big = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const auto chunk = [&](const std::string& type, const std::string& data) {
    const std::string named = type + data;
    return big(static_cast<uint32_t>(data.size())) + named +
           big(Crc32(0, {reinterpret_cast<const uint8_t*>(named.data()), named.size()}));
  };
  const std::string gray("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1A\n" + chunk("IHDR", big(width) + big(height) + gray) + chunk("IDAT", "x") +
         chunk("IEND", "");
}

TEST_CASE_METHOD(PackFixture,
                 "Pack: an image that no JPEG can hold is named, and nothing is left") {
  const std::filesystem::path cats = folder_ / "long/train/cat";
  std::filesystem::create_directories(cats);
  std::ofstream(cats / "a.png", std::ios::binary) << HeaderOfPng(65'500, 9);
  const auto allowed = Packing::Create(Opened("long", "image_folder"), folder_ / "packed", {});
  INFO(Message(allowed.status()));
  CHECK(allowed.ok());
  std::ofstream(cats / "b.png", std::ios::binary) << HeaderOfPng(65'501, 9);
  const Status status = Pack(Opened("long", "image_folder"), "other", {});
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Message(status).find("train sample 1 becomes 9 x 65501 pixels, of which a JPEG may have "
                             "65500") == 0);
  CHECK_FALSE(std::filesystem::exists(folder_ / "other.partial"));
}

TEST_CASE_METHOD(PackFixture, "Pack: what is not finished is removed; what is there is kept") {
  const auto source = Made("cifar10", 20, 10);
  {
    const auto packing = Packing::Create(source, folder_ / "packed", {});
    REQUIRE(packing.ok());
    REQUIRE((*packing)->WritePart(0).ok());
    REQUIRE(std::filesystem::exists(folder_ / "packed.partial"));
    const Status second = Packing::Create(source, folder_ / "packed", {}).status();
    CHECK(second.code() == absl::StatusCode::kAlreadyExists);
    CHECK(std::filesystem::exists(folder_ / "packed.partial"));
  }
  CHECK_FALSE(std::filesystem::exists(folder_ / "packed.partial"));
  REQUIRE(Pack(source, "packed", {}).ok());
  CHECK(Pack(source, "packed", {}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(Pack(source, "cifar10", {}).code() == absl::StatusCode::kAlreadyExists);
  CHECK(FilesOf("packed").size() == 2);
}

TEST_CASE_METHOD(PackFixture, "Pack: columns that are no images are refused") {
  const Status status = Pack(Made("npy", 20, 10), "packed", {});
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Message(status).starts_with("it has 4 columns, of which 0 are images"));
}

TEST_CASE_METHOD(PackFixture, "Pack: an image that cannot be read is named") {
  const auto source = Made("image_folder", 10, 10);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder_ / "image_folder")) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 100);
  }
  const Status status = Pack(source, "packed", {});
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Message(status).find("train sample 0") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder_ / "packed.partial"));
}

}  // namespace
}  // namespace ringmaster::data
