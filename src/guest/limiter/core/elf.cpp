#include "guest/limiter/core/elf.h"

#include <link.h>

#include "guest/limiter/core/words.h"

namespace tensor_fusion::guest::limiter {
namespace {

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* hash = nullptr;
  const ElfW(Half) * versions = nullptr;
  std::uintptr_t soname = 0;
};

// glibc relocates these addresses in place, other loaders (and the vDSO) leave them as offsets.
std::uintptr_t absolute(const Object& object, std::uintptr_t value) {
  return value < object.low ? object.base + value : value;
}

Tables tables_of(const Object& object) {
  Tables tables;
  if (object.dynamic == 0) return tables;
  for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(object.dynamic); entry->d_tag != DT_NULL; ++entry) {
    const std::uintptr_t at = absolute(object, entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(at);
        break;
      case DT_GNU_HASH:
        tables.gnu_hash = reinterpret_cast<const std::uint32_t*>(at);
        break;
      case DT_HASH:
        tables.hash = reinterpret_cast<const std::uint32_t*>(at);
        break;
      case DT_VERSYM:
        tables.versions = reinterpret_cast<const ElfW(Half)*>(at);
        break;
      case DT_SONAME:
        tables.soname = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return tables;
}

struct Search {
  const char* name = nullptr;
  const void* address = nullptr;
  int skip = 0;
  Object* found = nullptr;
};

bool named(const Object& object, const char* name) {
  const Tables tables = tables_of(object);
  if (tables.soname != 0 && tables.strings != nullptr) return starts_with(tables.strings + tables.soname, name);
  return starts_with(last_part(object.path), name);
}

int visit(dl_phdr_info* info, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  Object object;
  object.base = info->dlpi_addr;
  object.low = ~std::uintptr_t{0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const std::uintptr_t start = object.base + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      if (start < object.low) object.low = start;
      if (start + header.p_memsz > object.high) object.high = start + header.p_memsz;
    } else if (header.p_type == PT_DYNAMIC) {
      object.dynamic = start;
    }
  }
  for (std::size_t i = 0; info->dlpi_name != nullptr && info->dlpi_name[i] != 0 && i + 1 < sizeof object.path; ++i)
    object.path[i] = info->dlpi_name[i];
  const bool match = search.name != nullptr ? named(object, search.name) : object.contains(search.address);
  if (!match || search.skip-- > 0) return 0;
  *search.found = object;
  return 1;
}

int read_count(dl_phdr_info* info, std::size_t, void* argument) {
  *static_cast<std::uint64_t*>(argument) = info->dlpi_adds;
  return 1;
}

bool usable(const Tables& tables, std::uint32_t index, const char* name) {
  const auto& symbol = tables.symbols[index];
  const bool hidden_version = tables.versions != nullptr && (tables.versions[index] & 0x8000) != 0;
  return symbol.st_shndx != SHN_UNDEF && !hidden_version && same(tables.strings + symbol.st_name, name);
}

std::uint32_t gnu_index(const Tables& tables, const char* name) {
  std::uint32_t hash = 5381;
  for (const char* letter = name; *letter != 0; ++letter) hash = hash * 33 + static_cast<unsigned char>(*letter);
  const std::uint32_t bucket_count = tables.gnu_hash[0];
  const std::uint32_t first = tables.gnu_hash[1];
  const std::uint32_t bloom_words = tables.gnu_hash[2];
  const auto* buckets = tables.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const auto* chain = buckets + bucket_count;
  if (bucket_count == 0) return 0;
  std::uint32_t index = buckets[hash % bucket_count];
  if (index < first) return 0;
  for (;; ++index) {
    const std::uint32_t entry = chain[index - first];
    if ((entry | 1) == (hash | 1) && usable(tables, index, name)) return index;
    if ((entry & 1) != 0) return 0;
  }
}

std::uint32_t sysv_index(const Tables& tables, const char* name) {
  const std::uint32_t count = tables.hash[1];
  for (std::uint32_t index = 1; index < count; ++index)
    if (usable(tables, index, name)) return index;
  return 0;
}

}  // namespace

bool find_object(const char* name, int nth, Object& found) {
  Search search;
  search.name = name;
  search.skip = nth;
  search.found = &found;
  return dl_iterate_phdr(visit, &search) == 1;
}

std::uint64_t load_count() {
  std::uint64_t count = 0;
  dl_iterate_phdr(read_count, &count);
  return count;
}

bool object_of(const void* address, Object& found) {
  Search search;
  search.address = address;
  search.found = &found;
  return dl_iterate_phdr(visit, &search) == 1;
}

void* find_symbol(const Object& object, const char* name) {
  const Tables tables = tables_of(object);
  if (tables.symbols == nullptr || tables.strings == nullptr) return nullptr;
  std::uint32_t index = 0;
  if (tables.gnu_hash != nullptr) {
    index = gnu_index(tables, name);
  } else if (tables.hash != nullptr) {
    index = sysv_index(tables, name);
  }
  if (index == 0) return nullptr;
  const auto& symbol = tables.symbols[index];
  const std::uintptr_t address = object.base + symbol.st_value;
  if ((symbol.st_info & 0xf) == STT_GNU_IFUNC) return reinterpret_cast<void* (*)()>(address)();
  return reinterpret_cast<void*>(address);
}

}  // namespace tensor_fusion::guest::limiter
