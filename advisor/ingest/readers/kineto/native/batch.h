/* Rows on their way to Arrow: columns that the caller reads in place, and the names they refer to.
 *
 * An event's name, category and class are one code into the batch's own dictionary of distinct
 * (category, name, on a stream?) triples. The triples outlive a batch, so that what the caller has
 * said of one (its class, whether its shapes are kept) is asked for once. */
#ifndef ADVISOR_BATCH_H
#define ADVISOR_BATCH_H

#include <stdlib.h>

#include "json.h"

#define MOST_TEXT ((size_t)32 << 20) /* bytes of one text column of a batch */
#define MOST_TRIPLES (1u << 16)
#define SLOTS (1u << 18)
#define MOST_ARENA ((size_t)32 << 20)
#define MAX_COMM 24

enum { CODE, RANK, EVENT_ID, START, DUR, DEVICE, STREAM, PID, TID, CORRELATION, EXTERNAL, BYTES, COLUMNS };
static const uint8_t WIDTH[COLUMNS] = {4, 4, 8, 8, 8, 4, 8, 8, 8, 8, 8, 8};

typedef struct {
    uint8_t *data;
    size_t size, room;
} buffer;

static inline int put(buffer *b, const void *data, size_t size) {
    if (size > MOST_TEXT - b->size) return 0;
    if (b->size + size > b->room) {
        size_t room = b->room ? b->room * 2 : 4096;
        while (room < b->size + size) room *= 2;
        uint8_t *grown = realloc(b->data, room);
        if (!grown) return 0;
        b->data = grown, b->room = room;
    }
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
    return 1;
}

static inline void set_bit(uint8_t *bits, int64_t at, int on) {
    if (on) bits[at >> 3] |= (uint8_t)(1u << (at & 7));
    else bits[at >> 3] &= (uint8_t)~(1u << (at & 7));
}

/* Text of rows one after the other, with the offset at which each ends. */
typedef struct {
    buffer data, offsets;
} texts;

static inline int put_end(texts *t) {
    int32_t end = (int32_t)t->data.size;
    return put(&t->offsets, &end, sizeof end);
}

typedef struct {
    int32_t capacity, rows, comm_rows, names;
    uint8_t *column[COLUMNS], *valid[COLUMNS]; /* valid[CODE] is the category's */
    texts name, category;
    buffer class_of;
    buffer comm_rank, comm_id, comm_valid[MAX_COMM];
    texts comm[MAX_COMM]; /* integers use `data` alone */
} batch;

static inline int put_valid(buffer *bits, int32_t row, int on) {
    uint8_t none = 0;
    if ((size_t)row / 8 >= bits->size && !put(bits, &none, 1)) return 0;
    set_bit(bits->data, row, on);
    return 1;
}

void advisor_batch_free(batch *b) {
    if (!b) return;
    for (int i = 0; i < COLUMNS; i++) free(b->column[i]), free(b->valid[i]);
    free(b->name.data.data), free(b->name.offsets.data);
    free(b->category.data.data), free(b->category.offsets.data);
    free(b->class_of.data), free(b->comm_rank.data), free(b->comm_id.data);
    for (int i = 0; i < MAX_COMM; i++)
        free(b->comm[i].data.data), free(b->comm[i].offsets.data), free(b->comm_valid[i].data);
    free(b);
}

/* As new, with the memory that it has. 0 when there is no room. */
int32_t advisor_batch_clear(batch *b) {
    b->rows = b->comm_rows = b->names = 0;
    b->class_of.size = b->comm_rank.size = b->comm_id.size = 0;
    b->name.data.size = b->name.offsets.size = b->category.data.size = b->category.offsets.size = 0;
    int done = put_end(&b->name) && put_end(&b->category);
    for (int i = 0; i < MAX_COMM; i++) {
        b->comm[i].data.size = b->comm[i].offsets.size = b->comm_valid[i].size = 0;
        done = done && put_end(&b->comm[i]);
    }
    return done;
}

batch *advisor_batch_new(int32_t capacity) {
    batch *b = calloc(1, sizeof *b);
    if (!b || capacity <= 0) return advisor_batch_free(b), NULL;
    b->capacity = capacity;
    for (int i = 0; i < COLUMNS; i++) {
        b->column[i] = malloc((size_t)capacity * WIDTH[i]);
        b->valid[i] = calloc((size_t)capacity / 8 + 1, 1);
        if (!b->column[i] || !b->valid[i]) return advisor_batch_free(b), NULL;
    }
    return advisor_batch_clear(b) ? b : (advisor_batch_free(b), NULL);
}

typedef struct {
    uint64_t hash;
    uint32_t category, category_size, name, name_size; /* in the arena */
    uint32_t batch;                                    /* the batch that gave it `code` */
    int32_t code, class_;
    uint8_t flags, on_device, asks, dropped; /* asks: 0 not known, 1 no, 2 yes */
} triple;

enum { ON_STREAM = 1, NO_CATEGORY = 2, METADATA = 4 };

typedef struct {
    uint64_t seed;
    buffer arena;
    uint32_t count, *slot; /* slot: 1 + index into item */
    triple *item;
} triples;

static inline uint64_t hash_bytes(uint64_t h, const uint8_t *p, size_t size) {
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x9FB21C651E98DF25u;
        h ^= h >> 32;
    }
    uint64_t rest = size;
    for (size_t i = 0; i < size; i++) rest = rest << 8 | p[i];
    h = (h ^ rest) * 0x9FB21C651E98DF25u;
    return h ^ h >> 29;
}

static inline int same(const triples *t, uint32_t at, uint32_t size, const value *text) {
    return (size_t)(text->end - text->at) == size && (!size || !memcmp(t->arena.data + at, text->at, size));
}

/* The triple, or NULL and in `place` the slot in which it would stand. */
static triple *find(triples *t, const value *category, const value *name, uint8_t flags,
                    uint64_t *hash, uint32_t *place) {
    uint64_t h = hash_bytes(t->seed ^ flags, category->at, (size_t)(category->end - category->at));
    h = *hash = hash_bytes(h, name->at, (size_t)(name->end - name->at));
    for (uint32_t i = (uint32_t)h % SLOTS;; i = (i + 1) % SLOTS) {
        if (!t->slot[i]) return *place = i, NULL;
        triple *found = &t->item[t->slot[i] - 1];
        if (found->hash == h && found->flags == flags && same(t, found->name, found->name_size, name) &&
            same(t, found->category, found->category_size, category))
            return found;
    }
}

static triple *add(triples *t, const value *category, const value *name, uint8_t flags,
                   uint64_t hash, uint32_t place) {
    size_t sizes[2] = {(size_t)(category->end - category->at), (size_t)(name->end - name->at)};
    if (t->count >= MOST_TRIPLES || sizes[0] + sizes[1] > MOST_ARENA - t->arena.size) return NULL;
    triple made = {.hash = hash, .flags = flags, .category = (uint32_t)t->arena.size};
    made.category_size = (uint32_t)sizes[0], made.name_size = (uint32_t)sizes[1];
    if (!put(&t->arena, category->at, sizes[0])) return NULL;
    made.name = (uint32_t)t->arena.size;
    if (!put(&t->arena, name->at, sizes[1])) return t->arena.size = made.category, NULL;
    t->item[t->count] = made;
    t->slot[place] = ++t->count;
    return &t->item[t->count - 1];
}

static void forget(triples *t) {
    memset(t->slot, 0, SLOTS * sizeof *t->slot);
    t->count = 0, t->arena.size = 0;
}

#endif
