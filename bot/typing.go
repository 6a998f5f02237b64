package bot

import (
	"context"
	"time"

	tg "github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"pilder/store"
)

// typingEvery is how often the typing sign is renewed; Telegram shows it for 5 s.
const typingEvery = 4 * time.Second

// typeSigns shows that somebody is being worked for: at once when a message was taken, then while its run waits or runs.
func (b *Bot) typeSigns(ctx context.Context) error {
	tick := time.NewTicker(typingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c := <-b.typing:
			b.typeSign(ctx, c)
		case <-tick.C:
			chats, err := b.store.BusyChats(ctx, b.id)
			if err != nil {
				if ctx.Err() == nil {
					b.cfg.Log.Warn().Str("event", "typing.failed").Err(err).Send()
				}
				continue
			}
			for _, c := range chats {
				b.typeSign(ctx, c)
			}
		}
	}
}

// typeSign shows it once. During a penalty nothing at all goes to the chat; a failure changes nothing, but its penalty is
// kept.
func (b *Bot) typeSign(ctx context.Context, c store.Chat) {
	if _, ok := b.pace.free(c.ID); !ok {
		return
	}
	b.aside(ctx, 10*time.Second, func(ctx context.Context) {
		_, err := b.lib.SendChatAction(ctx, &tg.SendChatActionParams{
			ChatID: c.ID, MessageThreadID: int(c.Topic), Action: models.ChatActionTyping,
		})
		b.minded(c.ID, err)
	})
}

// minded keeps the penalty of a call whose outcome otherwise does not matter.
func (b *Bot) minded(chat int64, err error) {
	if no := refused(err); no != nil && no.Code == 429 {
		b.pace.block(chat, b.cfg.Now().Add(max(no.RetryAfter, time.Second)))
	}
}
